"""Models that people bring: each is compared and answers as it does alone, or a message says what to do."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import load_file
from numpy.typing import NDArray

import robustcmp as rc
from brought import CLASSES, SIDE, Case, Figures, N, as_model, ask, check, compare_models, drawn, library
from robustcmp.models.classifier import Classifier
from robustcmp.sources.named_files import file_origins

SHAPE = (SIDE, SIDE, 3)
MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]
NO_GRADIENT = "a comparison; gradient attacks are not applicable"
PyTorch = partial(Case, "PyTorch", figures=compare_models)
Keras = partial(Case, "Keras and TensorFlow", figures=compare_models)
Jax = partial(Case, "JAX", figures=compare_models)
Other = partial(Case, "Other models", figures=compare_models)


# PyTorch --------------------------------------------------------------------------------------------------------------


def in_torch(*before: Any, after: Any = (), outputs: int = CLASSES) -> Any:
    torch = library("torch")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten()]
        return torch.nn.Sequential(*before, *layers, torch.nn.Linear(4 * (SIDE - 2) ** 2, outputs), *after).eval()


def through(forward: Callable[..., Any], network: Any = None) -> Any:
    """Return a module of torch around a network with a forward of its own."""
    torch = library("torch")

    class Own(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network = in_torch() if network is None else network
            self.register_buffer("scratch", torch.zeros(64, *SHAPE[::-1]))

        def forward(self, x: Any) -> Any:
            return forward(self, x)

    return Own().eval()


def torch_tensor(n: int = N) -> Any:
    return library("torch").tensor(drawn(n).transpose(0, 3, 1, 2))


def exported(network: Any) -> Any:
    torch = library("torch")
    return torch.export.export(network, (torch_tensor(2),), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))


def normalised(x: Any) -> Any:
    torch = library("torch")
    return (x - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def writing(module: Any, x: Any) -> Any:
    module.scratch[: len(x)] = x.detach()
    return module.network(module.scratch[: len(x)] + (x - x.detach()))


def torch_kind(change: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    """Return what makes a network of torch that was changed, and the network."""
    return lambda: (change(library("torch"), in_torch()), in_torch())


def of_torchvision() -> Any:
    return library("torchvision.models").resnet18(weights=None).eval(), None


def of_timm() -> Any:
    return library("timm").create_model("resnet10t", pretrained=False, num_classes=CLASSES).eval(), None


def of_transformers() -> Any:
    transformers = library("transformers")
    settings = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    settings |= {"image_size": SIDE, "patch_size": 4, "num_labels": CLASSES, "initializer_range": 0.5}
    return transformers.ViTForImageClassification(transformers.ViTConfig(**settings)).eval(), None


def compiled_by_inductor(torch: Any, network: Any) -> Any:
    if not any(map(shutil.which, ("g++", "clang++", "c++"))):
        pytest.skip("torch.compile needs a compiler of C++")
    return torch.compile(network)


TORCH = [
    *(
        PyTorch(
            f"a module in {name}", "rc.wrap(network)", torch_kind(lambda t, n, d=name: n.to(getattr(t, d))), near=near
        )
        for name, near in {"float16": 5e-3, "bfloat16": 5e-2, "float64": 1e-4}.items()
    ),
    PyTorch(
        "torch.nn.DataParallel, on a CPU",
        "rc.wrap(parallel.eval())",
        torch_kind(lambda torch, network: torch.nn.DataParallel(network).eval()),
    ),
    PyTorch(
        "a module from torch.jit.script",
        "rc.wrap(scripted)",
        torch_kind(lambda torch, network: torch.jit.script(network)),
    ),
    PyTorch(
        "a module from torch.compile, by its default backend inductor",
        "rc.wrap(compiled)",
        torch_kind(compiled_by_inductor),
        marks=[pytest.mark.slow, pytest.mark.filterwarnings("default")],  # a minute of compiling C++
    ),
    PyTorch("a program from torch.export", "rc.wrap(exported)", torch_kind(lambda torch, network: exported(network))),
    PyTorch(
        "a module in the memory format channels-last",
        "rc.wrap(network)",
        torch_kind(lambda torch, network: network.to(memory_format=torch.channels_last)),
    ),
    PyTorch(
        "a model that is not safe for threads: it writes into a buffer of its own",
        "rc.wrap(network)",
        lambda: (through(writing), in_torch()),
        got="a comparison; it is asked one call after another",
    ),
    PyTorch(
        "an answer with `.logits`, and a processor with mean and standard deviation",
        'rc.wrap(network, preprocessing={"mean": processor.image_mean, "std": processor.image_std, "axis": -3})',
        lambda: (
            through(lambda module, x: SimpleNamespace(loss=None, logits=module.network(x))),
            through(lambda module, x: module.network(normalised(x))),
        ),
        options={"preprocessing": {"mean": MEAN, "std": STD, "axis": -3}},
    ),
    PyTorch(
        "a softmax at the end of a torch.nn.Sequential",
        "rc.wrap(network, cut_softmax=True)",
        lambda: (in_torch(after=[library("torch").nn.Softmax(dim=1)]), in_torch()),
        options={"cut_softmax": True},
    ),
    PyTorch("torchvision: resnet18", "rc.wrap(resnet18(weights=…).eval(), preprocessing=…)", of_torchvision),
    PyTorch("timm: a ResNet", "rc.wrap(timm.create_model(…).eval())", of_timm),
    PyTorch(
        "transformers: a vision transformer for classes",
        "rc.wrap(ViTForImageClassification(…).eval())",
        of_transformers,
    ),
]


# Keras and TensorFlow -------------------------------------------------------------------------------------------------


def keras_layers(end: str | None = None, before: Any = ()) -> list[Any]:
    """Return layers of a small network with a batch norm that has statistics; `end` is the last activation."""
    keras = library("keras")
    keras.utils.set_random_seed(0)
    norm = {"moving_mean_initializer": "random_normal", "beta_initializer": "random_normal"}
    layers = [keras.layers.Conv2D(4, 3, activation="tanh"), keras.layers.BatchNormalization(**norm)]
    return [*before, *layers, keras.layers.Flatten(), keras.layers.Dense(CLASSES, activation=end)]


def in_keras(end: str | None = None, before: Any = ()) -> Any:
    keras = library("keras")
    x = images = keras.Input(SHAPE)
    for layer in keras_layers(end, before):
        x = layer(x)
    return keras.Model(images, x)


def subclassed(
    answer: Callable[[Any], Any] = lambda logits: logits, end: str | None = None, is_built: bool = True
) -> Any:
    """Return a subclassed model whose answer is what `answer` makes of logits."""
    keras = library("keras")

    class Subclassed(keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.parts = keras_layers(end)

        def call(self, x: Any, training: bool | None = None) -> Any:
            for part in self.parts:
                x = part(x, training=training) if isinstance(part, keras.layers.BatchNormalization) else part(x)
            return answer(x)

    model = Subclassed()
    if is_built:
        model(np.zeros((1, *SHAPE), np.float32))
    return model


def nested(model: Any, *after: Any) -> Any:
    keras = library("keras")
    return keras.Sequential([keras.Input(SHAPE), model, *after])


def in_policy(policy: str) -> Any:
    keras = library("keras")
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = in_keras()
    finally:
        keras.config.set_dtype_policy(before)
    model.set_weights(in_keras().get_weights())
    return model


def augmented() -> Any:
    layers = library("keras").layers
    return in_keras(before=[layers.RandomFlip("horizontal"), layers.RandomContrast(0.5), layers.Dropout(0.5)])


def rescaled(scale: float, offset: float = 0.0) -> Any:
    return in_keras(before=[library("keras").layers.Rescaling(scale, offset=offset)])


def preprocessed() -> Any:
    keras = library("keras")
    images = keras.Input(SHAPE)
    return keras.Model(images, in_keras()(keras.applications.mobilenet_v2.preprocess_input(images)))


def saved_model(folder: Path) -> Any:
    in_keras().export(folder, verbose=False)
    return library("tensorflow").saved_model.load(str(folder))


def tf_module(answer: Callable[[Any], Any] = lambda z: {"logits": z, "features": 2 * z}) -> Any:
    """Return a module of TensorFlow without Keras, around a model."""
    tf = library("tensorflow")

    class Module(tf.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = in_keras()
            self.known = [weight.value for weight in self.model.weights]

        @tf.function(input_signature=[tf.TensorSpec([None, *SHAPE], tf.float32)])  # type: ignore[misc]
        def __call__(self, pixels: Any) -> Any:
            return answer(self.model(pixels, training=False))

    return Module()


def tf_function(spec: Any = None, change: Callable[[Any], Any] = lambda x: x) -> Any:
    """Return a function of TensorFlow, or its concrete one for images as a spec says."""
    tf, model = library("tensorflow"), in_keras()
    function = tf.function(lambda x: model(change(x), training=False))
    if spec is None:
        return function
    concrete = function.get_concrete_function(spec(tf))
    concrete.network = model  # TensorFlow itself holds its variables weakly
    return concrete


KERAS = [
    Keras("a Functional model", "rc.wrap(model)", lambda: (in_keras(), subclassed())),
    Keras(
        "a subclassed model that answers a dict with logits",
        "rc.wrap(model)",
        lambda: (subclassed(lambda z: {"logits": z, "features": 2 * z}), in_keras()),
    ),
    Keras("a model within a model", "rc.wrap(model)", lambda: (nested(in_keras()), in_keras())),
    Keras("augmentation layers, which are not active", "rc.wrap(model)", lambda: (augmented(), in_keras())),
    *(
        Keras(f"a softmax at the end: {where}", "rc.wrap(model, cut_softmax=True)", make, options={"cut_softmax": True})
        for where, make in {
            "the activation of the last Dense": lambda: (in_keras("softmax"), in_keras()),
            "a Softmax layer": lambda: (nested(in_keras(), library("keras").layers.Softmax()), in_keras()),
            "the last of a model within the model": lambda: (nested(in_keras("softmax")), in_keras()),
            "a sigmoid for each class": lambda: (in_keras("sigmoid"), in_keras()),
        }.items()
    ),
    *(
        Keras(what, "rc.wrap(model, bounds=(0, 255))", make, near=1e-3, options={"bounds": (0, 255)})
        for what, make in {
            "Rescaling(1 / 255)": lambda: (rescaled(1 / 255), in_keras()),
            "keras.applications.mobilenet_v2.preprocess_input": lambda: (
                preprocessed(),
                rc.wrap(rescaled(2, -1), device="cpu", bounds=(0, 1)),
            ),
        }.items()
    ),
    *(
        Keras(
            f"a model with the policy {policy}",
            "rc.wrap(model)",
            lambda p=policy: (in_policy(p), in_keras()),
            near=near,
        )
        for policy, near in {"mixed_float16": 5e-3, "mixed_bfloat16": 5e-2, "float64": 1e-4}.items()
    ),
    Keras(
        "a SavedModel of model.export",
        "rc.wrap(tf.saved_model.load(DIR))",
        lambda: (saved_model(Path("saved")), in_keras()),
    ),
    Keras("a tf.function", "rc.wrap(tf.function(function))", lambda: (tf_function(), in_keras())),
    Keras(
        "a concrete function",
        "rc.wrap(function.get_concrete_function(tf.TensorSpec([None, H, W, C])))",
        lambda: (tf_function(lambda tf: tf.TensorSpec([None, *SHAPE])), in_keras()),
    ),
    Keras("a tf.Module", "rc.wrap(module)", lambda: (tf_module(), in_keras())),
]


# JAX ------------------------------------------------------------------------------------------------------------------


def weights(seed: int = 0, dtype: Any = np.float32) -> dict[str, Any]:
    """Return the parameters of `apply`, as NumPy arrays."""
    rng = np.random.default_rng(seed)
    kernel = rng.normal(size=(3 * SIDE * SIDE, 16)).astype(dtype) / 8
    return {
        "hidden": {"kernel": kernel, "bias": np.zeros(16, dtype)},
        "out": rng.normal(size=(16, CLASSES)).astype(dtype),
    }


def apply(parameters: Any, images: Any) -> Any:
    """Return the logits of a network of two layers."""
    x = images.reshape(len(images), -1).astype(parameters["out"].dtype)
    hidden = x @ parameters["hidden"]["kernel"] + parameters["hidden"]["bias"]
    return hidden * (hidden > 0) @ parameters["out"]


def pair() -> Any:
    return apply, weights()


def one_image(parameters: Any, image: Any) -> Any:
    return apply(parameters, image[None])[0]


def in_precision(name: str) -> Any:
    return apply, weights(dtype=library("jax.numpy").dtype(name))


def flax_linen() -> Any:
    """Return a module with batch norm and dropout, and its variables."""
    linen, jax = library("flax.linen"), library("jax")

    class Network(linen.Module):  # type: ignore[misc, name-defined]
        @linen.compact
        def __call__(self, x: Any, train: bool = False) -> Any:
            x = linen.relu(linen.BatchNorm(use_running_average=not train)(linen.Conv(4, (3, 3))(x)))
            return linen.Dense(CLASSES)(linen.Dropout(0.5, deterministic=not train)(x.reshape(len(x), -1)))

    module = Network()
    return module, module.init(jax.random.key(0), jax.numpy.asarray(drawn(2)))


def equinox(is_ready: bool = True) -> Any:
    eqx, jax = library("equinox"), library("jax")
    size, key = 3 * SIDE * SIDE, jax.random.key(0)
    module = eqx.nn.Sequential(
        [eqx.nn.Lambda(lambda x: x.reshape(-1)), eqx.nn.Dropout(0.5), eqx.nn.Linear(size, CLASSES, key=key)]
    )
    return eqx.nn.inference_mode(module, is_ready)


def haiku() -> Any:
    hk, jax = library("haiku"), library("jax")
    transformed = hk.without_apply_rng(hk.transform(lambda x: hk.Linear(CLASSES)(x.reshape(len(x), -1))))
    return transformed, transformed.init(jax.random.key(0), jax.numpy.asarray(drawn()))


def bound() -> Any:
    module, variables = flax_linen()
    return module.bind(variables), (module.apply, variables)


def transformed_pair() -> Any:
    transformed, parameters = haiku()
    return (transformed.apply, parameters), None


JAX = [
    Jax(
        "a function of images",
        'rc.wrap(function, framework="jax")',
        lambda: (partial(apply, library("jax").tree.map(library("jax.numpy").asarray, weights())), pair()),
        options={"framework": "jax"},
    ),
    Jax(
        "a pair (apply, parameters)",
        "rc.wrap((apply, parameters))",
        lambda: ((library("jax").jit(apply), weights()), pair()),
    ),
    Jax(
        "a pair of a function of one image",
        "rc.wrap((jax.vmap(apply, (None, 0)), parameters))",
        lambda: ((library("jax").vmap(one_image, (None, 0)), weights()), pair()),
    ),
    *(
        Jax(
            f"a pair with parameters in {name}",
            "rc.wrap((apply, parameters))",
            lambda name=name: (in_precision(name), pair()),
            near=near,
        )
        for name, near in {"float16": 2e-2, "bfloat16": 2e-1, "float64": 1e-4}.items()
    ),
    Jax("Flax linen: a module and its variables", "rc.wrap((module.apply, variables))", bound),
    Jax(
        "Equinox: a module of one image, channels first",
        'rc.wrap(equinox.nn.inference_mode(module), data_format="channels_first")',
        lambda: (equinox(), None),
        options={"data_format": "channels_first"},
    ),
    Jax(
        "Haiku: a transformed function and its parameters",
        "rc.wrap((haiku.without_apply_rng(transformed).apply, parameters))",
        transformed_pair,
    ),
]


# messages -------------------------------------------------------------------------------------------------------------


def lazy() -> Any:
    torch = library("torch")
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(CLASSES)).eval()


def own_sequential() -> Any:
    torch = library("torch")

    class Normalising(torch.nn.Sequential):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return super().forward((x - 0.13) / 0.3)

    return Normalising(torch.nn.Flatten(), torch.nn.Linear(3 * SIDE * SIDE, CLASSES), torch.nn.Softmax(1)).eval()


def rarely(module: Any, x: Any) -> Any:
    return module.network(x + 0.3 if np.random.random() < 0.1 else x)  # noqa: NPY002, as a defence may


def of_the_batch(parameters: Any, images: Any) -> Any:
    answer = apply(parameters, images)
    return answer - answer.mean(axis=0)


def dropped() -> Any:
    keras = library("keras")
    images = keras.Input(SHAPE)
    return keras.Model(images, in_keras()(keras.layers.Dropout(0.5)(images, training=True)))


def two_signatures() -> Any:
    tf, module = library("tensorflow"), tf_module()
    one, two = (module.__call__.get_concrete_function() for _ in range(2))
    tf.saved_model.save(module, "two", signatures={"train": one, "embed": two})
    return tf.saved_model.load("two")


def saved_file(end: str, save: Callable[[str], Any]) -> None:
    """Save a file, and name it in the command."""
    save(f"a{end}")
    file_origins([f"torch=a{end}"])


def keras_file(layer: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        in_keras(before=[layer]).save("a.h5")
    load_file("a.h5", "tensorflow")


PROGRAM = "the message: it is a program, which could run code; torch-program=FILE runs it in a process of its own"
CUT = r"returns probabilities.*Cut its last softmax with .*cut_softmax=True"
MESSAGES = [
    PyTorch(
        "a softmax at the end, kept",
        "rc.wrap(network)",
        lambda: ask(in_torch(after=[library("torch").nn.Softmax(1)])),
        "the message: cut it with cut_softmax=True",
        CUT,
    ),
    PyTorch(
        "a `torch.nn.Sequential` with a softmax and a `forward` or hooks of its own",
        "rc.wrap(network, cut_softmax=True)",
        lambda: ask(own_sequential(), cut_softmax=True),
        'the message: return logits, or keep it with outputs="probabilities"',
        "has a forward or hooks of its own. Return",
    ),
    PyTorch(
        "one number for two classes, without saying so",
        "rc.wrap(network)",
        lambda: check(in_torch(outputs=1)),
        'the message: pass outputs="binary-logit" or "binary-probability"',
        r'outputs="binary-logit"\), or "binary-prob',
    ),
    PyTorch(
        "a module left in training mode",
        "rc.wrap(network)",
        lambda: ask(in_torch().train()),
        "the message: call module.eval() first",
        r"training mode.*module\.eval\(\)",
    ),
    PyTorch(
        "lazy layers that have no weights yet",
        "rc.wrap(network)",
        lambda: ask(lazy()),
        "the message: call it once, and load its weights",
        "lazy layers.*Call it once",
    ),
    PyTorch(
        "tensors on the device meta, all or some",
        "rc.wrap(network)",
        lambda: ask(in_torch().to("meta")),
        "the message: load its weights, without offloading",
        "device 'meta'.*load_state_dict",
    ),
    PyTorch(
        "a network that seldom draws, by `random`, NumPy or torch",
        "rc.wrap(network)",
        lambda: check(through(rarely)),
        "the message: attack its mean, robustcmp.averaged(model)",
        r"draws from a global random|different logits",
    ),
    PyTorch(
        "a TorchScript file `.pt`",
        "robustcmp eval --weights torch=a.pt",
        lambda: saved_file(".pt", library("torch").jit.script(in_torch()).save),
        PROGRAM,
        r"TorchScript program, which could run code.*torch-program=a\.pt",
    ),
    PyTorch(
        "a torch.export file `.pt2`",
        "robustcmp eval --weights torch=a.pt2",
        lambda: saved_file(".pt2", partial(library("torch").export.save, exported(in_torch()))),
        PROGRAM,
        r"torch\.export program, which could run code.*torch-program=a\.pt2",
    ),
    Keras(
        "a softmax at the end, kept",
        "rc.wrap(model)",
        lambda: ask(in_keras("softmax")),
        "the message: cut it with cut_softmax=True",
        CUT,
    ),
    Keras(
        "a softmax in a subclassed model",
        "rc.wrap(model, cut_softmax=True)",
        lambda: ask(subclassed(end="softmax"), cut_softmax=True),
        'the message: return logits from the network, or keep it with outputs="probabilities"',
        r"Functional model.*received Subclassed\. Return logits.*\"probabilities\"",
    ),
    Keras(
        "no softmax to cut",
        "rc.wrap(model, cut_softmax=True)",
        lambda: ask(in_keras("tanh"), cut_softmax=True),
        "the message: which layer is the last",
        "found no softmax or sigmoid at the end of the network.*Dense",
    ),
    Keras(
        "a dropout that is called with training=True",
        "rc.wrap(model)",
        lambda: check(dropped()),
        "the message: attack its mean, robustcmp.averaged(model)",
        r"different logits.*robustcmp\.averaged\(model\)",
    ),
    Keras(
        "a first layer for 8-bit images, without bounds",
        "rc.wrap(model)",
        lambda: ask(rescaled(1 / 255)),
        "the message: pass bounds=(0, 255)",
        r"scales images from \[0, 255\] itself.*Pass bounds=\(0, 255\)",
    ),
    Keras(
        "a model of two outputs",
        "rc.wrap(model)",
        lambda: ask(subclassed(lambda z: [z, z])),
        "the message: wrap a network around it that returns the logits alone",
        "should return one tensor of logits, received",
    ),
    Keras(
        "a model that has no weights yet",
        "rc.wrap(model)",
        lambda: ask(subclassed(is_built=False)),
        "the message: call it once, and load its weights",
        "has no weights yet.*Call it once",
    ),
    Keras(
        "a SavedModel of several signatures",
        "rc.wrap(tf.saved_model.load(DIR))",
        lambda: ask(two_signatures()),
        "the message: pass one of them, loaded.signatures[…]",
        r"signatures train, embed.*loaded\.signatures\['train'\]",
    ),
    Keras(
        "a signature for one image at a time",
        "rc.wrap(loaded)",
        lambda: ask(tf_function(lambda tf: tf.TensorSpec([1, *SHAPE]))),
        "the message: export it for any number of them",
        r"of the shape \(1, .*tf\.TensorSpec\(\[None, H, W, C\]\)",
    ),
    Keras(
        "a directory of a SavedModel",
        "robustcmp eval --weights tensorflow=DIR",
        lambda: saved_model(Path("saved")) and file_origins(["tensorflow=saved"]),
        "the message: it is a program; save x.keras, or return it from module:function",
        r"is a SavedModel.*x\.keras",
    ),
    Keras(
        "a file `.h5` of Keras with a `Lambda` or a layer of your own",
        "robustcmp eval --weights tensorflow=a.h5",
        lambda: keras_file(library("keras").layers.Lambda(lambda x: 2 * x)),
        "the message: it needs code; return it from module:function",
        "has a Lambda, which needs code.*module:function",
    ),
    Jax(
        "a function that uses NumPy inside",
        "rc.wrap(jax.jit(function))",
        lambda: ask(library("jax").jit(lambda x: np.asarray(x).reshape(len(x), -1))),
        "the message: write it with jax.numpy, or pass functions of NumPy arrays",
        r"cannot be traced.*jax\.numpy",
    ),
    Jax(
        "a function of one image, without jax.vmap",
        "rc.wrap((apply, parameters))",
        lambda: ask((lambda p, image: image.reshape(-1) @ p["hidden"]["kernel"], weights())),
        "the message: turn it into jax.vmap(apply, (None, 0))",
        r"pass jax\.vmap of it: jax\.vmap\(apply, \(None, 0\)",
    ),
    Jax(
        "a plain function without framework=",
        "rc.wrap(function)",
        lambda: ask(partial(apply, weights())),
        "the message: pass framework=, or a pair (apply, parameters)",
        "Pass framework= for a plain JAX function",
    ),
    Jax(
        "a pair in the other order",
        "rc.wrap((parameters, apply))",
        lambda: ask((weights(), apply)),
        "the message: pass a pair (apply, parameters)",
        r"received a tuple \(dict, function\)\. Pass a pair",
    ),
    Jax(
        "parameters without values, of jax.eval_shape",
        "rc.wrap((apply, parameters))",
        lambda: ask(
            (apply, library("jax").eval_shape(lambda: library("jax").tree.map(library("jax.numpy").asarray, weights())))
        ),
        "the message: they are only shapes; load them",
        "have no values.*Load them",
    ),
    Jax(
        "Flax linen: a module without its variables",
        "rc.wrap(module)",
        lambda: ask(flax_linen()[0]),
        "the message: pass the pair (module.apply, variables)",
        r"Pass a pair .*\(module\.apply, variables\) of Flax linen",
    ),
    Jax(
        "Equinox: a module left in training mode",
        'rc.wrap(module, data_format="channels_first")',
        lambda: ask(equinox(is_ready=False), data_format="channels_first"),
        "the message: call equinox.nn.inference_mode(module) first",
        r"equinox\.nn\.inference_mode\(module\) first",
    ),
    Jax(
        "batch norm by the statistics of the batch",
        "rc.wrap((apply, parameters))",
        lambda: rc.evaluate(
            {"m": rc.wrap((of_the_batch, weights()), device="cpu")},
            drawn(),
            np.zeros(N, np.int64),
            suite="smoke",
            progress=False,
        ),
        "the message: it answers an image differently beside other images; use running statistics",
        "differently beside other images.*running statistics",
    ),
    Other(
        "a model that answers classes alone",
        "rc.wrap_functions(logits=lambda x: fitted.predict(x.reshape(len(x), -1)))",
        lambda: rc.predict(rc.wrap_functions(logits=lambda x: np.arange(len(x))), drawn(9)),
        "the message: return (N, K), one row for each image",
        r"logits should return \(N, K\), one row for each of 9 images",
    ),
]


# files ----------------------------------------------------------------------------------------------------------------


def torch_file() -> Any:
    library("torch").jit.save(library("torch").jit.script(in_torch()), "a.pt")
    return "torch-program=a.pt", None, in_torch()


def state_file(network: Any, given: str, architecture: str, plain: Any) -> Any:
    library("torch").save(network.state_dict(), "a.pt")
    return given, architecture, plain


def whole_file() -> None:
    library("torch").save(in_torch(), "a.pt")
    file_origins(["torch=a.pt"])


def normalised_file() -> Any:
    plain = through(lambda module, x: module.network(normalised(x)))
    values = [":".join(map(str, numbers)) for numbers in (MEAN, STD)]
    return state_file(in_torch(), f"torch=a.pt,mean={values[0]},std={values[1]}", "brought.nets:torch_network", plain)


def softmax_file() -> Any:
    return state_file(in_torch(), "torch=a.pt,softmax", "brought.nets:soft_network", in_torch())


def safetensors_file() -> Any:
    network = in_torch()
    library("safetensors.torch").save_file(network.state_dict(), "a.safetensors")
    return "torch=a.safetensors", "brought.nets:torch_network", network


def keras_model_file(end: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        in_keras("softmax").save(f"a{end}")
    return f"tensorflow=a{end},softmax", None, in_keras()


def sum_columns(images: Any) -> Any:
    return images.sum(axis=1)[:, :CLASSES, 0]


def compare_files(brought: Any, case: Case) -> Figures:
    """Ask the network of a file, or of a function, that is named as in the command."""
    file, architecture, plain = brought
    ((origin,),) = file_origins([file], architecture).values()
    yield Classifier(origin.load("cpu")).logits(drawn()), Classifier(as_model(plain)).logits(drawn())


FILES = [
    PyTorch(
        "a TorchScript or torch.export file that you trust",
        "robustcmp gate old.pt new.pt …",
        torch_file,
        figures=compare_files,
    ),
    PyTorch(
        "a `.safetensors` file",
        "robustcmp eval --weights torch=a.safetensors --architecture lenet5",
        safetensors_file,
        figures=compare_files,
    ),
    PyTorch(
        "a file `.pt` of a network that was trained on normalised images",
        "robustcmp eval --weights torch=a.pt,mean=0.1307,std=0.3081 --architecture lenet1",
        normalised_file,
        figures=compare_files,
    ),
    PyTorch(
        "a file or a function of a network that ends in a softmax",
        "robustcmp eval --weights torch=a.pt,softmax --architecture nets:soft --dataset digits",
        softmax_file,
        "a comparison; a message asks for `,softmax` if it is missing",
        figures=compare_files,
    ),
    PyTorch(
        "a file `.pt` of a whole network, torch.save(network, path)",
        "robustcmp eval --weights torch=a.pt",
        whole_file,
        "the message: save its state dict and name its architecture",
        r"whole network.* torch\.save\(network\.state_dict\(\), path\) and name",
    ),
    Other(
        "a function of yours that returns a function of arrays, beside a network",
        "robustcmp eval --weights linear:numpy=nets:linear torch=nets:mine --dataset digits",
        lambda: ("linear:numpy=brought.nets:of_arrays", None, rc.wrap_functions(logits=sum_columns)),
        NO_GRADIENT,
        figures=compare_files,
    ),
    Keras(
        "a whole model in a file `.h5` or `.hdf5`",
        "robustcmp eval --weights tensorflow=a.h5",
        lambda: keras_model_file(".h5"),
        figures=compare_files,
    ),
    Keras(
        "a file `.keras`",
        "robustcmp eval --weights tensorflow=a.keras",
        lambda: keras_model_file(".keras"),
        figures=compare_files,
    ),
    Jax(
        "a function of yours that returns a pair or a module",
        "robustcmp eval --weights jax=nets:mine",
        lambda: ("jax=brought.nets:jax_pair", None, pair()),
        figures=compare_files,
    ),
]


# no networks ----------------------------------------------------------------------------------------------------------


def flat(images: NDArray[np.float32]) -> NDArray[np.float32]:
    return images.reshape(len(images), -1)


def fitted(classifier: Any) -> Any:
    """Return a classifier that is fitted to the images, and the logarithms of its probabilities."""
    images = drawn()
    probabilities = classifier.fit(flat(images), np.arange(N) % CLASSES).predict_proba
    model = rc.wrap_functions(logits=lambda x: probabilities(flat(x)), outputs="probabilities")
    return model, rc.wrap_functions(logits=lambda x: np.log(probabilities(flat(x))))


def of_scikit_learn() -> Any:
    linear, preprocessing = library("sklearn.linear_model"), library("sklearn.preprocessing")
    make_pipeline = library("sklearn.pipeline").make_pipeline
    return fitted(make_pipeline(preprocessing.StandardScaler(), linear.LogisticRegression(max_iter=300)))


def of_two_classes() -> Any:
    svm = library("sklearn.svm").SVC().fit(flat(drawn()), np.arange(N) % 2)

    def both(x: Any) -> Any:
        z = svm.decision_function(flat(x))
        return np.stack([0 * z, z], axis=1)

    model = rc.wrap_functions(logits=lambda x: svm.decision_function(flat(x)), outputs="binary-logit")
    return model, rc.wrap_functions(logits=both)


PROBABILITIES = (
    'rc.wrap_functions(logits=lambda x: fitted.predict_proba(x.reshape(len(x), -1)), outputs="probabilities")'
)
FITTED = [
    Other("a pipeline of scikit-learn, with scaling inside", PROBABILITIES, of_scikit_learn, NO_GRADIENT),
    Other(
        "XGBoost",
        PROBABILITIES,
        lambda: fitted(library("xgboost").XGBClassifier(n_estimators=20, n_jobs=1)),
        NO_GRADIENT,
    ),
    Other(
        "two classes of scikit-learn, by a decision function",
        'rc.wrap_functions(logits=lambda x: svm.decision_function(x.reshape(len(x), -1)), outputs="binary-logit")',
        of_two_classes,
    ),
]

CASES = [*TORCH, *KERAS, *JAX, *MESSAGES, *FILES, *FITTED]
