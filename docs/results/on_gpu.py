"""Train a network of the zoo on a GPU, several seeds of a framework in one program, with the images on the GPU.

``python -m robustcmp.train`` hands every batch to the framework from NumPy, which keeps a GPU waiting for a network as
small as ResNet-20. Here a step, or an epoch of them, is one program on the GPU. All that the result depends on is as
there: the initial weights, the order of the batches, crops and flips, the rate of every step, the loss, the optimiser,
and float32 without TF32.

1. ``python docs/results/on_gpu.py prepare FOLDER``, where every framework is installed, writes the initial weights and
   the images.
2. ``python docs/results/on_gpu.py train FOLDER --framework NAME``, on the machine with the GPU, goes on from what
   FOLDER holds and writes there. Programs of several frameworks can share the GPU.
3. ``python docs/results/on_gpu.py finish FOLDER`` measures the test accuracy in each framework itself, on a CPU, and
   writes the weights files into FOLDER, which ``python tools/ship.py`` puts into the zoo.

TensorFlow need not be installed on the machine with the GPU: ``prepare`` has TensorFlow lower its own training step, as
it does for ``jit_compile=True``, and JAX's XLA compiles and runs it there. The weights files say so.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from robustcmp.data import load_dataset
from robustcmp.data.dataset import stratified_split
from robustcmp.frameworks import get_framework
from robustcmp.models.model import wrap
from robustcmp.networks.architecture import Architecture, get_architecture, is_trainable
from robustcmp.networks.weights import WeightsFile, write_weights
from robustcmp.provenance import made_with, package_version
from robustcmp.sources.from_zoo import FromZoo
from robustcmp.sources.recipes import Recipe, load_recipe
from robustcmp.sources.training import (
    EPOCH_CURVES,
    VALIDATION_FRACTION,
    Augmentation,
    accuracy,
    batch_order,
    steps_an_epoch,
    training_metadata,
)

DATASET = "cifar10"
FRAMEWORKS = ("torch", "tensorflow", "jax")
PARTS = ("weights", "velocity")
VALIDATED = 1000  # images at once

State = dict[str, dict[str, NDArray[Any]]]  # weights and velocity


def batch_sizes(recipe: Recipe, images: int) -> list[int]:
    """Return the sizes that the batches of an epoch have: the recipe's, and the last one's."""
    return sorted({recipe.batch_size, images % recipe.batch_size or recipe.batch_size}, reverse=True)


def step_file(folder: Path, model: str, recipe_name: str, size: int) -> Path:
    """Return where TensorFlow's step lies, for batches of a size."""
    return folder / f"{model}-tensorflow-{recipe_name}-{size}.bin"


class Training:
    """One training on its way: what the files of FOLDER hold of it.

    Attributes
    ----------
    state : State
        Weights and velocity after the epochs that are done.
    curves : dict of str to list of float
        As in a weights file. ``seconds`` is an epoch's time divided by the trainings of the program.
    environment : dict
        What it is made with.
    """

    def __init__(self, folder: Path, model: str, framework: str, recipe_name: str, seed: int, recipe: Recipe):
        self.name, self.seed = f"{model}-{framework}-{recipe_name}-{seed}", seed
        self.path = folder / f"{self.name}.npz"
        start = self.path if self.path.exists() else folder / f"{model}-{framework}-{seed}-initial.npz"
        with np.load(start) as file:
            arrays = {name: file[name] for name in file.files}
        self.settings = json.dumps(msgspec.to_builtins(recipe), sort_keys=True)
        if str(arrays.get("settings", self.settings)) != self.settings:
            raise SystemExit(f"{self.path} was trained with {arrays['settings']}, not with {self.settings}")
        self.state: State = {
            part: {name.partition("/")[2]: a for name, a in arrays.items() if name.startswith(f"{part}/")}
            for part in PARTS
        }
        for name, array in self.state["weights"].items():
            if is_trainable(name):
                self.state["velocity"].setdefault(name, np.zeros_like(array))
        self.curves = {name: list(arrays.get(f"curves/{name}", ())) for name in (*EPOCH_CURVES, "batch_loss")}
        self.environment: dict[str, Any] = json.loads(str(arrays["environment"]))

    @property
    def epochs(self) -> int:
        """How many epochs are done."""
        return len(self.curves["loss"])

    def save(self) -> None:
        """Write all of it."""
        arrays = {f"{part}/{name}": array for part, arrays in self.state.items() for name, array in arrays.items()}
        arrays |= {f"curves/{name}": np.array(values, np.float64) for name, values in self.curves.items()}
        arrays |= {"environment": np.array(json.dumps(self.environment)), "settings": np.array(self.settings)}
        temporary = self.path.with_suffix(".part.npz")
        np.savez(temporary, **arrays)
        temporary.replace(self.path)


class Epoch:
    """What the steps of one epoch of a training depend on, as NumPy arrays."""

    def __init__(self, recipe: Recipe, seed: int, epoch: int, rest: NDArray[np.int64], images: int):
        count = steps_an_epoch(recipe, len(rest))
        augmentation = Augmentation(recipe, seed, epoch, images)
        order = rest[batch_order(seed, epoch, len(rest))]
        of_images = order.astype(np.int32), augmentation.places[order].astype(np.int32), augmentation.flipped[order]
        self._of_images: tuple[NDArray[Any], ...] = of_images
        rates = [recipe.rate((epoch + step / count) / recipe.epochs) for step in range(count)]
        self.rates = np.array(rates, np.float32)
        self.sizes = np.array([recipe.batch_size] * (count - 1) + [len(rest) - recipe.batch_size * (count - 1)])

    def steps(self, size: int) -> tuple[NDArray[Any], ...]:
        """Return places in the training set, crops, flips and rates of the steps of a size: one row a step."""
        those = np.flatnonzero(self.sizes == size)
        first, last = self.sizes[: those[0]].sum(), self.sizes[: those[-1] + 1].sum()
        rows = (array[first:last].reshape(len(those), size, *array.shape[1:]) for array in self._of_images)
        return (*rows, self.rates[those])


# on the GPU ----------------------------------------------------------------------------------------------------------

# Both functions return a class whose objects are trainings there: `begin` queues the steps of an epoch, `end` waits
# for them and returns their losses and the accuracy on the images held out, `state` returns weights and velocity.


def in_torch(
    architecture: Architecture,
    recipe: Recipe,
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    held_out: NDArray[np.int64],
) -> Any:
    """Return the class for PyTorch: a step is a captured graph, and every training has a stream."""
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.type == "cuda"
    torch.backends.cudnn.benchmark = True
    pixels, classes = torch.tensor(images, device=device), torch.tensor(labels, device=device)
    held = torch.tensor(held_out, device=device)
    size = images.shape[1]
    span = torch.arange(size, device=device)
    framework = get_framework("torch")

    def batch_of(which: torch.Tensor, places: torch.Tensor, flipped: torch.Tensor) -> torch.Tensor:
        rows = places[:, :1] + span - recipe.crop
        columns = places[:, 1:] + torch.where(flipped[:, None], span.flip(0), span) - recipe.crop
        inside = ((rows >= 0) & (rows < size))[:, :, None] & ((columns >= 0) & (columns < size))[:, None]
        taken = pixels[which[:, None, None], rows.clamp(0, size - 1)[:, :, None], columns.clamp(0, size - 1)[:, None]]
        return (taken / 255.0 * inside[..., None]).permute(0, 3, 1, 2)

    class InTorch:
        def __init__(self, training: Training):
            self.module = framework.build(architecture, 0, "auto").to(memory_format=torch.channels_last)
            framework.set_weights(self.module, architecture, training.state["weights"])
            trainer: Any = framework.trainer(self.module, architecture, recipe.momentum, recipe.weight_decay)
            self.trainer, self.fitted = trainer, list(trainer._parameters.values())
            trainer.set_velocity(training.state["velocity"])
            for parameter in self.fitted:  # in the parameter's own layout
                of_one = trainer._optimizer.state[parameter]
                of_one["momentum_buffer"] = torch.zeros_like(parameter).copy_(of_one["momentum_buffer"])
            self.velocity = [trainer._optimizer.state[parameter]["momentum_buffer"] for parameter in self.fitted]
            self.stream = torch.cuda.Stream() if on_gpu else None
            self.steps: dict[int, Any] = {}  # by the size of the batch: arrays, counter, losses and what takes a step

        def step(self, arrays: tuple[torch.Tensor, ...], counter: torch.Tensor, losses: torch.Tensor) -> None:
            """Take the step that the counter is at."""
            which, places, flipped, rate = (array.index_select(0, counter)[0] for array in arrays)
            y = classes[which.long()]
            loss = torch.nn.functional.cross_entropy(self.module(batch_of(which.long(), places.long(), flipped)), y)
            gradients = torch.autograd.grad(loss, self.fitted)
            with torch.no_grad():
                total = torch._foreach_add(gradients, torch._foreach_mul(self.fitted, recipe.weight_decay))
                torch._foreach_mul_(self.velocity, recipe.momentum)
                torch._foreach_add_(self.velocity, total)
                torch._foreach_sub_(self.fitted, torch._foreach_mul(self.velocity, rate))
                losses.index_copy_(0, counter, loss.detach()[None])
                counter.add_(1)

        def captured(self, *arguments: Any) -> Any:
            """Return a function that takes a step: on a GPU, the graph of one. The training is left as it is."""
            if self.stream is None:
                return lambda: self.step(*arguments)
            moving = [*self.module.state_dict().values(), *self.velocity]
            kept = [value.clone() for value in moving]
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                for _ in range(3):  # PyTorch asks for a few steps before a capture
                    arguments[1].zero_()
                    self.step(*arguments)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=self.stream):
                    self.step(*arguments)
            torch.cuda.synchronize()
            with torch.no_grad():
                for value, before in zip(moving, kept, strict=True):
                    value.copy_(before)
            return graph.replay

        def begin(self, epoch: Epoch) -> None:
            self.module.train()
            with framework.full_precision(pixels):
                for size in dict.fromkeys(epoch.sizes.tolist()):
                    new = tuple(torch.tensor(array, device=device) for array in epoch.steps(size))
                    if size not in self.steps:
                        counter = torch.zeros(1, dtype=torch.int64, device=device)
                        losses = torch.zeros(len(new[0]), device=device)
                        self.steps[size] = new, counter, losses, self.captured(new, counter, losses)
                    for array, values in zip(self.steps[size][0], new, strict=True):
                        array.copy_(values)
                if on_gpu:
                    torch.cuda.synchronize()
                with torch.cuda.stream(self.stream):
                    for arrays, counter, _, take in self.steps.values():
                        counter.zero_()
                        for _ in range(len(arrays[0])):
                            take()

        def end(self) -> tuple[NDArray[np.float64], float]:
            if self.stream is not None:
                self.stream.synchronize()
            self.module.eval()
            right = 0
            with torch.inference_mode(), framework.full_precision(pixels):
                for part in held.split(VALIDATED):
                    logits = self.module((pixels[part] / 255.0).permute(0, 3, 1, 2))
                    right += int((logits.argmax(1) == classes[part]).sum())
            losses = [losses.cpu().numpy().astype(np.float64) for _, _, losses, _ in self.steps.values()]
            return np.concatenate(losses), right / len(held)

        def state(self) -> State:
            weights = framework.get_weights(self.module, architecture)
            return {"weights": weights, "velocity": self.trainer.velocity()}

    return InTorch


def in_xla(
    architecture: Architecture,
    recipe: Recipe,
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    held_out: NDArray[np.int64],
    lowered: dict[int, bytes] | None = None,
) -> Any:
    """Return the class for JAX, or with a `lowered_step` for every size of batch TensorFlow: an epoch is a program.

    JAX computes the accuracy on the images held out, also for TensorFlow.
    """
    import jax
    import jax.numpy as jnp

    from robustcmp.frameworks.jax import apply, training_step

    pixels, classes, held = jnp.asarray(images), jnp.asarray(labels.astype(np.int32)), jnp.asarray(held_out)
    size = images.shape[1]
    span = jnp.arange(size)
    update = training_step(architecture, recipe.momentum, recipe.weight_decay)
    steps = {batch: jax.export.deserialize(step).call for batch, step in (lowered or {}).items()}

    def batch_of(pixels: Any, which: Any, places: Any, flipped: Any) -> Any:
        rows = places[:, :1] + span - recipe.crop
        columns = places[:, 1:] + jnp.where(flipped[:, None], span[::-1], span) - recipe.crop
        inside = ((rows >= 0) & (rows < size))[:, :, None] & ((columns >= 0) & (columns < size))[:, None]
        taken = pixels[which[:, None, None], rows.clip(0, size - 1)[:, :, None], columns.clip(0, size - 1)[:, None]]
        return taken.astype(jnp.float32) / 255 * inside[..., None]

    def step(state: Any, x: Any, y: Any, rate: Any) -> Any:
        if steps:
            return steps[len(x)](state, x, y, rate)
        with jax.default_matmul_precision("float32"):
            weights, velocity, loss = update(state["weights"], state["velocity"], x, y, rate)
        return {"weights": weights, "velocity": velocity}, loss

    @jax.jit
    def several(state: Any, pixels: Any, classes: Any, arrays: Any) -> Any:
        def body(state: Any, now: Any) -> Any:
            which, places, flipped, rate = now
            return step(state, batch_of(pixels, which, places, flipped), classes[which], rate)

        return jax.lax.scan(body, state, arrays)

    @jax.jit
    def right(weights: Any, pixels: Any, classes: Any, which: Any) -> Any:
        with jax.default_matmul_precision("float32"):
            logits = apply(architecture, weights, pixels[which].astype(jnp.float32) / 255)
        return (logits.argmax(1) == classes[which]).sum()

    class InXLA:
        def __init__(self, training: Training):
            self.at = jax.tree.map(jnp.asarray, training.state)

        def begin(self, epoch: Epoch) -> None:
            self.losses = []
            for batch in dict.fromkeys(epoch.sizes.tolist()):
                self.at, losses = several(self.at, pixels, classes, epoch.steps(batch))
                self.losses.append(losses)
            parts = [held[start : start + VALIDATED] for start in range(0, len(held), VALIDATED)]
            self.right = [right(self.at["weights"], pixels, classes, part) for part in parts]

        def end(self) -> tuple[NDArray[np.float64], float]:
            losses = np.concatenate([np.asarray(loss, np.float64) for loss in self.losses])
            return losses, sum(map(int, self.right)) / len(held)

        def state(self) -> State:
            return jax.tree.map(np.asarray, self.at)  # type: ignore[no-any-return]

    return InXLA


def environment(framework: str, initial: dict[str, Any]) -> dict[str, Any]:
    """Return what a training is made with here, from initial weights that another machine may have made."""
    if framework == "torch":
        import torch

        device = f"cuda, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else "cpu"
    else:
        import jax

        (first, *_) = jax.devices()
        device = f"cuda, {first.device_kind}" if first.platform == "gpu" else "cpu"
    version = initial["framework"] if framework == "tensorflow" else get_framework(framework).version()
    compiled = {"compiled_by": f"XLA of jaxlib {package_version('jaxlib')}"} if framework == "tensorflow" else {}
    about = {"framework": version, "device": device, "precision": "float32", "initial_weights": initial}
    return made_with() | about | compiled


def train(arguments: argparse.Namespace) -> None:
    """Train all seeds of a framework, an epoch of each in turn."""
    deadline = time.monotonic() + arguments.seconds
    folder, model, framework = arguments.folder, arguments.model, arguments.framework
    architecture, recipe = get_architecture(model), load_recipe(model, DATASET, arguments.recipe)
    with np.load(folder / "images.npz") as file:
        images, labels = file["images"], file["labels"].astype(np.int64)
    rest, held_out = stratified_split(labels, VALIDATION_FRACTION)
    if framework == "torch":
        on_gpu = in_torch(architecture, recipe, images, labels, held_out)
    else:
        sizes = batch_sizes(recipe, len(rest)) if framework == "tensorflow" else []
        lowered = {size: step_file(folder, model, arguments.recipe, size).read_bytes() for size in sizes}
        on_gpu = in_xla(architecture, recipe, images, labels, held_out, lowered)
    trainings = [Training(folder, model, framework, arguments.recipe, seed, recipe) for seed in arguments.seeds]
    going = {training.name: on_gpu(training) for training in trainings}
    for training in trainings:
        initial = training.environment.get("initial_weights", training.environment)
        training.environment = environment(framework, initial)
    last_epoch = 0.0
    while left := [training for training in trainings if training.epochs < recipe.epochs]:
        start = time.monotonic()
        if start + last_epoch > deadline:
            break
        epochs = [Epoch(recipe, training.seed, training.epochs, rest, len(images)) for training in left]
        for training, epoch in zip(left, epochs, strict=True):
            going[training.name].begin(epoch)
        for training, epoch in zip(left, epochs, strict=True):
            losses, share = going[training.name].end()
            training.curves["loss"].append(float(np.average(losses, weights=epoch.sizes)))
            training.curves["validation_accuracy"].append(share)
            training.curves["learning_rate"].append(float(epoch.rates[-1]))
            training.curves["batch_loss"] += losses.tolist()
        last_epoch = time.monotonic() - start
        for training in left:
            training.curves["seconds"].append(last_epoch / len(left))
            training.state = going[training.name].state()
            training.save()
        said = ", ".join(f"{training.curves['validation_accuracy'][-1]:.4f}" for training in left)
        print(f"{framework} {left[0].epochs}: {said} ({last_epoch:.2f} s)", flush=True)


# before and after ----------------------------------------------------------------------------------------------------


def prepare(arguments: argparse.Namespace) -> None:
    """Write what `train` starts from."""
    folder, model = arguments.folder, arguments.model
    folder.mkdir(parents=True, exist_ok=True)
    architecture, recipe = get_architecture(model), load_recipe(model, DATASET, arguments.recipe)
    data = load_dataset(DATASET, "train")
    images = np.rint(data.images * 255).astype(np.uint8)
    if not np.array_equal(images.astype(np.float32) / np.float32(255), data.images):
        raise SystemExit("the images are not 8-bit")
    np.savez_compressed(folder / "images.npz", images=images, labels=data.labels)
    for name in FRAMEWORKS:
        framework = get_framework(name)
        about = np.array(json.dumps(made_with() | {"framework": framework.version(), "device": "cpu"}))
        for seed in arguments.seeds:
            weights = framework.get_weights(framework.build(architecture, seed, "cpu"), architecture)
            arrays: Any = {f"weights/{key}": array for key, array in weights.items()}
            np.savez(folder / f"{model}-{name}-{seed}-initial.npz", environment=about, **arrays)
    rest, _ = stratified_split(data.labels, VALIDATION_FRACTION)
    for size in batch_sizes(recipe, len(rest)):
        step_file(folder, model, arguments.recipe, size).write_bytes(lowered_step(architecture, recipe, size))


def lowered_step(architecture: Architecture, recipe: Recipe, size: int) -> bytes:
    """Return TensorFlow's training step for batches of a size, as a function of JAX for a GPU or a CPU.

    It computes in float32 without TF32, which robustcmp switches off in TensorFlow.
    """
    import jax
    import tensorflow as tf
    from jax._src.lib import _jax
    from jax._src.lib.mlir import ir
    from jax._src.lib.mlir.dialects import func
    from jax.extend.core import Primitive
    from jax.interpreters import mlir

    from robustcmp.frameworks.tensorflow import _variables

    framework: Any = get_framework("tensorflow")
    network = framework.build(architecture, 0, "cpu")
    trainer: Any = framework.trainer(network, architecture, recipe.momentum, recipe.weight_decay)
    variables = {("weights", name): variable for name, variable in _variables(network, architecture).items()}
    variables |= {("velocity", name): variable for name, variable in trainer._velocity.items()}
    images, labels = tf.zeros((size, *architecture.input_shape)), tf.zeros(size, tf.int32)
    arguments = images, labels, tf.constant(recipe.learning_rate)
    step = tf.function(trainer._update, jit_compile=True)
    handles = step.get_concrete_function(*arguments).captured_inputs
    keys = [next(key for key, variable in variables.items() if variable.handle is handle) for handle in handles]
    if sorted(keys) != sorted(variables):
        raise SystemExit("TensorFlow's step does not use every variable once")
    ask = step.experimental_get_compiler_ir(*arguments)
    module = _jax.mlir.hlo_to_stablehlo(ask(stage="hlo_serialized"))
    # Which parameter an output is the new value of: {1}: (3, {}, may-alias)
    aliases = re.findall(r"\{(\d+)\}: \((\d+), \{\}", ask(stage="hlo").split("\n", 1)[0])
    written = {int(output): keys[int(parameter) - len(arguments)] for output, parameter in aliases}
    if sorted(written.values()) != sorted(keys):
        raise SystemExit("TensorFlow's step does not write every variable once")

    primitive = Primitive("tensorflow_step")
    primitive.multiple_results = True
    shapes: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    for (part, name), variable in variables.items():
        shapes[part][name] = jax.ShapeDtypeStruct(tuple(variable.shape), np.float32)
    results = [(), *(shapes[part][name].shape for _, (part, name) in sorted(written.items()))]
    primitive.def_abstract_eval(lambda *_: [jax.core.ShapedArray(shape, np.dtype("float32")) for shape in results])

    def lowering(context: Any, *operands: Any) -> Any:
        submodule = ir.Module.parse(module)
        for function in submodule.body.operations:
            for operation in list(function.regions[0].blocks[0].operations):
                if operation.operation.name == "mhlo.copy":  # says nothing but where a value lies
                    operation.operation.result.replace_all_uses_with(operation.operation.operands[0])
                    operation.operation.erase()
        types = ir.SymbolTable(submodule.operation)["main"].type.results
        name = mlir.merge_mlir_modules(context.module_context.module, "tensorflow_step", submodule)
        return func.CallOp(types, ir.FlatSymbolRefAttr.get(name), list(operands)).results

    mlir.register_lowering(primitive, lowering)

    def in_jax(state: Any, x: Any, y: Any, rate: Any) -> Any:
        loss, *values = primitive.bind(x, y, rate, *(state[part][name] for part, name in keys))
        new: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
        for (_, (part, name)), value in zip(sorted(written.items()), values, strict=True):
            new[part][name] = value
        return new, loss

    like = [jax.ShapeDtypeStruct(each.shape, each.dtype.as_numpy_dtype) for each in arguments]
    return bytes(jax.export.export(jax.jit(in_jax), platforms=("cuda", "cpu"))(shapes, *like).serialize())


def finish(arguments: argparse.Namespace) -> None:
    """Write the weights files of the trainings that are done, with the accuracy that each framework itself finds."""
    folder, model = arguments.folder, arguments.model
    architecture, recipe = get_architecture(model), load_recipe(model, DATASET, arguments.recipe)
    train_data, test_data = load_dataset(DATASET, "train"), load_dataset(DATASET, "test")
    for name in FRAMEWORKS:
        framework = get_framework(name)
        for seed in arguments.seeds:
            training = Training(folder, model, name, arguments.recipe, seed, recipe)
            if training.epochs < recipe.epochs:
                print(f"{training.name}: {training.epochs} of {recipe.epochs} epochs")
                continue
            native = framework.build(architecture, seed, "cpu")
            framework.set_weights(native, architecture, training.state["weights"])
            metadata = training_metadata(framework, architecture, recipe, train_data, seed, "cuda") | {
                "recipe": arguments.recipe,
                "environment": training.environment,
                "test_accuracy": accuracy(wrap(native, framework=name, device="cpu"), test_data),
                "validation_accuracy": training.curves["validation_accuracy"][-1],
                "test_data": test_data.digest,
            }
            curves = {key: np.array(values, np.float64) for key, values in training.curves.items()}
            path = folder / FromZoo(model, DATASET, name, arguments.recipe, seed).file
            write_weights(path, WeightsFile(training.state["weights"], metadata, curves))
            print(f"{path}: {metadata['test_accuracy']:.2%}", flush=True)


def seeds(text: str) -> list[int]:
    """Return the numbers of ``0-4`` or ``0,3``."""
    return [
        seed
        for part in text.split(",")
        for seed in range(int(part.partition("-")[0]), int(part.rpartition("-")[2]) + 1)
    ]


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "train", "finish"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--recipe", default="long")
    parser.add_argument("--framework", choices=FRAMEWORKS)
    parser.add_argument("--seeds", type=seeds, default=seeds("0-4"))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop before an epoch that would end later")
    arguments = parser.parse_args()
    if arguments.what == "train" and not arguments.framework:
        parser.error("train needs --framework")
    {"prepare": prepare, "train": train, "finish": finish}[arguments.what](arguments)


if __name__ == "__main__":
    main()
