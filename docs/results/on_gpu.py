"""Train a network of the zoo on a GPU: all seeds of a framework side by side, with the images there.

``python -m robustcmp.train`` hands every batch to the framework from NumPy, which keeps a GPU waiting for a network as
small as ResNet-20. Here a step, or an epoch of them, is one program on the GPU. All that the result depends on is as
there: the initial weights, the order of the batches, crops and flips, the rate of every step, the loss and the
optimiser. But convolutions may round their inputs to TF32, as every framework lets a GPU do by default.

``python docs/results/on_gpu.py prepare FOLDER`` makes, where every framework is installed, the initial weights and
the images; ``train FOLDER --framework NAME``, on the machine with the GPU, goes on from what FOLDER holds and writes
there; ``finish FOLDER`` measures the accuracy in each framework itself and writes the weights files of the zoo.

The machine with the GPU need not have TensorFlow: ``prepare`` has TensorFlow lower its own training step, as it does
for ``jit_compile=True``, and JAX's XLA compiles and runs it there. The weights files say so.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustcmp.data import load_dataset
from robustcmp.data.dataset import stratified_split
from robustcmp.frameworks import get_framework
from robustcmp.models.model import wrap
from robustcmp.networks.architecture import get_architecture, is_trainable
from robustcmp.networks.weights import WeightsFile, write_weights
from robustcmp.provenance import made_with, package_version
from robustcmp.zoo.from_zoo import FromZoo
from robustcmp.zoo.recipes import Recipe, load_recipe
from robustcmp.zoo.training import (
    VALIDATION_FRACTION,
    Augmentation,
    accuracy,
    batch_order,
    steps_an_epoch,
    training_metadata,
)

WEIGHTS = Path(__file__).parents[2] / "zoo" / "weights"
FRAMEWORKS = ("torch", "tensorflow", "jax")
PARTS = ("weights", "velocity")
VALIDATED = 1000  # images at once

Arrays = dict[str, NDArray[Any]]
State = dict[str, Arrays]  # weights and velocity


def batch_sizes(recipe: Recipe, images: int) -> list[int]:
    """Return the sizes that the batches of an epoch have: the recipe's, and the last one's."""
    return sorted({recipe.batch_size, images % recipe.batch_size or recipe.batch_size}, reverse=True)


class Training:
    """One training on its way: what the files of FOLDER hold of it."""

    def __init__(self, folder: Path, model: str, framework: str, recipe: str, seed: int):
        self.name = f"{model}-{framework}-{recipe}-{seed}"
        self.path = folder / f"{self.name}.npz"
        self.seed = seed
        start = self.path if self.path.exists() else folder / f"{model}-{framework}-{seed}-initial.npz"
        with np.load(start) as file:
            arrays = {name: file[name] for name in file.files}
        self.state: State = {
            part: {name.partition("/")[2]: a for name, a in arrays.items() if name.startswith(f"{part}/")}
            for part in PARTS
        }
        for name, array in self.state["weights"].items():
            if is_trainable(name):
                self.state["velocity"].setdefault(name, np.zeros_like(array))
        curves = ("loss", "validation_accuracy", "learning_rate", "seconds", "batch_loss")
        self.curves = {name: list(arrays.get(f"curves/{name}", ())) for name in curves}
        self.environment: dict[str, Any] = json.loads(str(arrays.get("environment", "{}")))

    @property
    def epochs(self) -> int:
        return len(self.curves["loss"])

    def save(self) -> None:
        arrays = {f"{part}/{name}": array for part, arrays in self.state.items() for name, array in arrays.items()}
        arrays |= {f"curves/{name}": np.array(values, np.float64) for name, values in self.curves.items()}
        arrays["environment"] = np.array(json.dumps(self.environment))
        temporary = self.path.with_suffix(".part.npz")
        np.savez(temporary, **arrays)
        temporary.replace(self.path)


class Epoch:
    """What the steps of one epoch of a training depend on: NumPy arrays, one row a step."""

    def __init__(self, recipe: Recipe, seed: int, epoch: int, rest: NDArray[np.int64], images: int):
        count = steps_an_epoch(recipe, len(rest))
        augmentation = Augmentation(recipe, seed, epoch, images)
        self.order = rest[batch_order(seed, epoch, len(rest))].astype(np.int32)
        self.places = augmentation.places[self.order].astype(np.int32)
        self.flipped = augmentation.flipped[self.order]
        self.rates = np.array([recipe.rate((epoch + step / count) / recipe.epochs) for step in range(count)])

    def whole(self, batch: int) -> tuple[NDArray[Any], ...]:
        """Return order, places, flips and rates of the steps that have whole batches."""
        count = len(self.order) // batch
        steps = [array[: count * batch].reshape(count, batch, *array.shape[1:]) for array in self._images()]
        return (*steps, self.rates[:count].astype(np.float32))

    def rest(self, batch: int) -> tuple[NDArray[Any], ...] | None:
        """Return the same of the last step, if its batch is smaller."""
        done = len(self.order) // batch * batch
        if done == len(self.order):
            return None
        return (*(array[done:] for array in self._images()), self.rates[-1].astype(np.float32))

    def _images(self) -> tuple[NDArray[Any], ...]:
        return self.order, self.places, self.flipped


# on the GPU ----------------------------------------------------------------------------------------------------------


# Both functions return a class whose objects are trainings there: `begin` queues the steps of an epoch, `end` waits
# for them and returns their losses and the accuracy on the images held out, `state` returns weights and velocity.


def in_torch(recipe: Recipe, images: NDArray[np.uint8], labels: NDArray[np.int64], held_out: NDArray[np.int64]) -> Any:
    """Return the class for PyTorch: a step is a captured graph, and every training has a stream."""
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    pixels = torch.tensor(images, device=device)
    classes = torch.tensor(labels, device=device)
    held = torch.tensor(held_out, device=device)
    span = torch.arange(images.shape[1], device=device)
    framework = get_framework("torch")

    def batch_of(which: Any, places: Any, flipped: Any) -> Any:
        rows = places[:, :1] + span - recipe.crop
        columns = places[:, 1:] + torch.where(flipped[:, None], span.flip(0), span) - recipe.crop
        size = len(span)
        inside = ((rows >= 0) & (rows < size))[:, :, None] & ((columns >= 0) & (columns < size))[:, None]
        taken = pixels[which[:, None, None], rows.clamp(0, size - 1)[:, :, None], columns.clamp(0, size - 1)[:, None]]
        return (taken / 255.0 * inside[..., None]).permute(0, 3, 1, 2)

    class Going:
        def __init__(self, training: Training, architecture: Any):
            self.training, self.architecture = training, architecture
            self.module = framework.build(architecture, 0, "auto").to(memory_format=torch.channels_last)
            framework.set_weights(self.module, architecture, training.state["weights"])
            trainer: Any = framework.trainer(self.module, architecture, recipe.momentum, recipe.weight_decay)
            self.trainer = trainer
            self.fitted = list(trainer._parameters.values())
            trainer.set_velocity(training.state["velocity"])
            for parameter in self.fitted:  # in the parameter's own layout
                of_one = trainer._optimizer.state[parameter]
                of_one["momentum_buffer"] = torch.zeros_like(parameter).copy_(of_one["momentum_buffer"])
            self.velocity = [trainer._optimizer.state[parameter]["momentum_buffer"] for parameter in self.fitted]
            self.stream = torch.cuda.Stream() if device.type == "cuda" else None
            self.graphs: dict[int, tuple[Any, tuple[Any, ...]]] = {}

        def step(self, which: Any, places: Any, flipped: Any, rate: Any) -> Any:
            loss = torch.nn.functional.cross_entropy(self.module(batch_of(which, places, flipped)), classes[which])
            gradients = torch.autograd.grad(loss, self.fitted)
            with torch.no_grad():
                total = torch._foreach_add(gradients, torch._foreach_mul(self.fitted, recipe.weight_decay))
                torch._foreach_mul_(self.velocity, recipe.momentum)
                torch._foreach_add_(self.velocity, total)
                torch._foreach_sub_(self.fitted, torch._foreach_mul(self.velocity, rate))
            return loss.detach()

        def next_step(self, size: int) -> tuple[Any, Any, Any]:
            """Return a function that takes the next step with a batch of that size, its counter and its losses."""
            count = len(self.arrays[size][0])
            arrays = self.arrays[size]
            counter = torch.zeros(1, dtype=torch.int64, device=device)
            losses = torch.zeros(count, device=device)

            def one() -> None:
                which, places, flipped, rate = (array.index_select(0, counter)[0] for array in arrays)
                losses.index_copy_(0, counter, self.step(which.long(), places.long(), flipped, rate)[None])
                counter.add_(1)

            return one, counter, losses

        def prepare(self, epoch: Epoch) -> None:
            """Capture the steps, without changing anything of the training."""
            parts = {recipe.batch_size: epoch.whole(recipe.batch_size)}
            left = epoch.rest(recipe.batch_size)
            if left is not None:
                parts[len(left[0])] = tuple(np.asarray(array)[None] for array in left)
            self.arrays = {
                size: tuple(torch.tensor(array, device=device) for array in arrays) for size, arrays in parts.items()
            }
            if self.graphs:
                return
            for size in self.arrays:
                one, counter, losses = self.next_step(size)
                if self.stream is None:
                    self.graphs[size] = (one, counter, losses)
                    continue
                kept = {name: value.clone() for name, value in self.module.state_dict().items()}
                moving = [value.clone() for value in self.velocity]
                self.stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(self.stream):
                    for _ in range(3):
                        counter.zero_()
                        one()
                    torch.cuda.synchronize()
                    graph = torch.cuda.CUDAGraph()
                    counter.zero_()
                    with torch.cuda.graph(graph, stream=self.stream):
                        one()
                torch.cuda.synchronize()
                with torch.no_grad():
                    for name, value in self.module.state_dict().items():
                        value.copy_(kept[name])
                    for value, before in zip(self.velocity, moving, strict=True):
                        value.copy_(before)
                self.graphs[size] = (graph.replay, counter, losses)

        def begin(self, epoch: Epoch) -> None:
            self.module.train()
            if not self.graphs:
                self.prepare(epoch)
                self.inputs = self.arrays
            else:
                self.prepare(epoch)
                for size, arrays in self.arrays.items():
                    for target, source in zip(self.inputs[size], arrays, strict=True):
                        target.copy_(source)
            torch.cuda.synchronize() if device.type == "cuda" else None
            for size in self.inputs:
                replay, counter, _ = self.graphs[size]
                with torch.cuda.stream(self.stream):
                    counter.zero_()
                    for _ in range(len(self.inputs[size][0])):
                        replay()

        def end(self) -> tuple[NDArray[np.float64], float]:
            if self.stream is not None:
                self.stream.synchronize()
            self.module.eval()
            with torch.inference_mode():
                right = 0
                for part in held.split(VALIDATED):
                    x = (pixels[part] / 255.0).permute(0, 3, 1, 2)
                    right += int((self.module(x).argmax(1) == classes[part]).sum())
            losses = [losses.cpu().numpy().astype(np.float64) for _, _, losses in self.graphs.values()]
            return np.concatenate(losses), right / len(held)

        def state(self) -> State:
            weights = framework.get_weights(self.module, self.architecture)
            return {"weights": weights, "velocity": self.trainer.velocity()}

    return Going


def in_xla(
    recipe: Recipe,
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    held_out: NDArray[np.int64],
    folder: Path,
    framework: str,
    architecture: Any,
) -> Any:
    """Return the class for JAX and TensorFlow: an epoch is a program."""
    import jax
    import jax.numpy as jnp

    from robustcmp.frameworks.jax import apply, training_step

    pixels, classes, held = jnp.asarray(images), jnp.asarray(labels.astype(np.int32)), jnp.asarray(held_out)
    span = jnp.arange(images.shape[1])

    def batch_of(pixels: Any, which: Any, places: Any, flipped: Any) -> Any:
        size = len(span)
        rows = places[:, :1] + span - recipe.crop
        columns = places[:, 1:] + jnp.where(flipped[:, None], span[::-1], span) - recipe.crop
        inside = ((rows >= 0) & (rows < size))[:, :, None] & ((columns >= 0) & (columns < size))[:, None]
        taken = pixels[which[:, None, None], rows.clip(0, size - 1)[:, :, None], columns.clip(0, size - 1)[:, None]]
        return taken.astype(jnp.float32) / 255 * inside[..., None]

    if framework == "jax":
        update = training_step(architecture, recipe.momentum, recipe.weight_decay)

        def step(state: Any, x: Any, y: Any, rate: Any) -> Any:
            weights, velocity, loss = update(state["weights"], state["velocity"], x, y, rate)
            return {"weights": weights, "velocity": velocity}, loss
    else:
        lowered = {size: jax.export.deserialize((folder / f"tensorflow-{size}.bin").read_bytes()).call
                   for size in batch_sizes(recipe, len(labels) - len(held_out))}  # fmt: skip

        def step(state: Any, x: Any, y: Any, rate: Any) -> Any:
            return lowered[len(x)](state, x, y, rate)

    @jax.jit
    def whole(state: Any, pixels: Any, classes: Any, steps: Any) -> Any:
        def body(state: Any, now: Any) -> Any:
            which, places, flipped, rate = now
            return step(state, batch_of(pixels, which, places, flipped), classes[which], rate)

        return jax.lax.scan(body, state, steps)

    @jax.jit
    def last(state: Any, pixels: Any, classes: Any, now: Any) -> Any:
        which, places, flipped, rate = now
        return step(state, batch_of(pixels, which, places, flipped), classes[which], rate)

    @jax.jit
    def right(weights: Any, pixels: Any, classes: Any, which: Any) -> Any:
        with jax.default_matmul_precision("float32"):
            logits = apply(architecture, weights, pixels[which].astype(jnp.float32) / 255)
        return (logits.argmax(1) == classes[which]).sum()

    class Going:
        def __init__(self, training: Training, architecture: Any):
            self.training = training
            self.at = jax.tree.map(jnp.asarray, training.state)

        def begin(self, epoch: Epoch) -> None:
            self.at, losses = whole(self.at, pixels, classes, epoch.whole(recipe.batch_size))
            self.losses = [losses]
            left = epoch.rest(recipe.batch_size)
            if left is not None:
                self.at, loss = last(self.at, pixels, classes, left)
                self.losses.append(loss[None])
            parts = [held[start : start + VALIDATED] for start in range(0, len(held), VALIDATED)]
            self.right = [right(self.at["weights"], pixels, classes, part) for part in parts]

        def end(self) -> tuple[NDArray[np.float64], float]:
            losses = np.concatenate([np.asarray(loss, np.float64) for loss in self.losses])
            return losses, sum(map(int, self.right)) / len(held)

        def state(self) -> State:
            return jax.tree.map(np.asarray, self.at)  # type: ignore[no-any-return]

    return Going


def environment(framework: str) -> dict[str, Any]:
    """Return what a training here is made with."""
    if framework == "torch":
        import torch

        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    else:
        import jax

        device = jax.devices()[0].device_kind
    versions = {"tensorflow": f"its training step, which XLA of jaxlib {package_version('jaxlib')} compiled"}
    return made_with() | {
        "device": device,
        "precision": "float32, convolutions in TF32 where there is a GPU",
        "framework": versions.get(framework) or get_framework(framework).version(),
    }


def train(arguments: argparse.Namespace) -> None:
    """Train all seeds of a framework, an epoch of each in turn."""
    deadline = time.monotonic() + arguments.seconds
    folder = arguments.folder
    architecture = get_architecture(arguments.model)
    recipe = load_recipe(arguments.model, "cifar10", arguments.recipe)
    with np.load(folder / "images.npz") as file:
        images, labels = file["images"], file["labels"].astype(np.int64)
    rest, held_out = stratified_split(labels, VALIDATION_FRACTION)
    if arguments.framework == "torch":
        Going = in_torch(recipe, images, labels, held_out)
    else:
        Going = in_xla(recipe, images, labels, held_out, folder, arguments.framework, architecture)
    trainings = [
        Training(folder, arguments.model, arguments.framework, arguments.recipe, seed) for seed in arguments.seeds
    ]
    going = [Going(training, architecture) for training in trainings]
    for training in trainings:
        training.environment |= environment(arguments.framework)
    last_epoch = 0.0
    while time.monotonic() + last_epoch < deadline:
        left = [one for one in going if one.training.epochs < recipe.epochs]
        if not left:
            break
        start = time.monotonic()
        epochs = [Epoch(recipe, one.training.seed, one.training.epochs, rest, len(images)) for one in left]
        for one, epoch in zip(left, epochs, strict=True):
            one.begin(epoch)
        for one, epoch in zip(left, epochs, strict=True):
            losses, accuracy = one.end()
            curves = one.training.curves
            sizes = [recipe.batch_size] * (len(losses) - 1) + [len(rest) - recipe.batch_size * (len(losses) - 1)]
            curves["loss"].append(float(np.average(losses, weights=sizes)))
            curves["validation_accuracy"].append(accuracy)
            curves["learning_rate"].append(float(epoch.rates[-1]))
            curves["batch_loss"] += losses.tolist()
        last_epoch = time.monotonic() - start
        for one in left:
            one.training.curves["seconds"].append(last_epoch / len(left))
            if one.training.epochs % arguments.every == 0 or one.training.epochs == recipe.epochs:
                one.training.state = one.state()
                one.training.save()
        said = ", ".join(f"{one.training.curves['validation_accuracy'][-1]:.4f}" for one in left)
        print(f"{arguments.framework} {left[0].training.epochs}: {said} ({last_epoch:.2f} s)", flush=True)


# before and after ----------------------------------------------------------------------------------------------------


def prepare(arguments: argparse.Namespace) -> None:
    """Write what `train` starts from."""
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    architecture = get_architecture(arguments.model)
    data = load_dataset("cifar10", "train")
    images = np.rint(data.images * 255).astype(np.uint8)
    if not np.array_equal(images.astype(np.float32) / np.float32(255), data.images):
        raise SystemExit("the images are no bytes")
    np.savez_compressed(folder / "images.npz", images=images, labels=data.labels)
    for name in FRAMEWORKS:
        framework = get_framework(name)
        for seed in arguments.seeds:
            weights = framework.get_weights(framework.build(architecture, seed, "cpu"), architecture)
            arrays: Any = {f"weights/{key}": array for key, array in weights.items()}
            np.savez(folder / f"{architecture.name}-{name}-{seed}-initial.npz", **arrays)
    recipe = load_recipe(arguments.model, "cifar10", arguments.recipe)
    rest, _ = stratified_split(data.labels, VALIDATION_FRACTION)
    for size in batch_sizes(recipe, len(rest)):
        (folder / f"tensorflow-{size}.bin").write_bytes(lowered_step(architecture, recipe, size))


def lowered_step(architecture: Any, recipe: Recipe, size: int) -> bytes:
    """Return TensorFlow's training step for batches of a size, as a function of JAX for a GPU or a CPU."""
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
    arguments = (
        tf.zeros((size, *architecture.input_shape)), tf.zeros(size, tf.int32), tf.constant(recipe.learning_rate),
    )  # fmt: skip
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
    outputs = [jax.ShapeDtypeStruct((), np.float32)]
    outputs += [jax.ShapeDtypeStruct(tuple(variables[written[i]].shape), np.float32) for i in sorted(written)]
    primitive.def_abstract_eval(lambda *_: [jax.core.ShapedArray(each.shape, each.dtype) for each in outputs])

    def lowering(context: Any, *operands: Any) -> Any:
        submodule = ir.Module.parse(module)
        for block in submodule.body.operations:
            for operation in list(block.regions[0].blocks[0].operations):
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
        for output, value in zip(sorted(written), values, strict=True):
            part, name = written[output]
            new[part][name] = value
        return new, loss

    shapes: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    for (part, name), variable in variables.items():
        shapes[part][name] = jax.ShapeDtypeStruct(tuple(variable.shape), np.float32)
    like = [jax.ShapeDtypeStruct(each.shape, each.dtype.as_numpy_dtype) for each in arguments]
    return bytes(jax.export.export(jax.jit(in_jax), platforms=("cuda", "cpu"))(shapes, *like).serialize())


def finish(arguments: argparse.Namespace) -> None:
    """Write the weights files of the trainings that are done, with the accuracy that each framework itself finds."""
    architecture = get_architecture(arguments.model)
    recipe = load_recipe(arguments.model, "cifar10", arguments.recipe)
    train_data, test_data = load_dataset("cifar10", "train"), load_dataset("cifar10", "test")
    for name in FRAMEWORKS:
        framework = get_framework(name)
        for seed in arguments.seeds:
            training = Training(arguments.folder, arguments.model, name, arguments.recipe, seed)
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
            path = WEIGHTS / FromZoo(arguments.model, "cifar10", name, arguments.recipe, seed).file
            write_weights(path, WeightsFile(training.state["weights"], metadata, curves))
            print(f"{training.name}: {metadata['test_accuracy']:.2%}", flush=True)


def seeds(text: str) -> list[int]:
    """Return the numbers of ``0-4`` or ``0,3``."""
    return [
        seed
        for part in text.split(",")
        for seed in range(int(part.partition("-")[0]), int(part.rpartition("-")[2]) + 1)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "train", "finish"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--recipe", default="long")
    parser.add_argument("--framework", choices=FRAMEWORKS)
    parser.add_argument("--seeds", type=seeds, default=seeds("0-4"))
    parser.add_argument("--every", type=int, default=1, help="epochs from one file to the next")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop before an epoch that would end later")
    arguments = parser.parse_args()
    {"prepare": prepare, "train": train, "finish": finish}[arguments.what](arguments)


if __name__ == "__main__":
    main()
