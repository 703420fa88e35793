"""What people bring from JAX: it is attacked beside another model, or a message says what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from brought import compared
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.cli import eval as eval_command
from robustcmp.errors import ModelError, RobustcmpError, UsageError
from robustcmp.models.classifier import Classifier
from robustcmp.models.preflight import check_model

jax = pytest.importorskip("jax", reason="jax is not installed")
jnp: Any = jax.numpy

N, SIDE, CLASSES = 24, 8, 3
PIXELS = SIDE * SIDE * 3
FIRST = {"data_format": "channels_first"}
brought = partial(pytest.mark.brought, group="JAX", got="a comparison")


def drawn(n: int = N) -> NDArray[np.float32]:
    return np.random.default_rng(0).random((n, SIDE, SIDE, 3), dtype=np.float32)


def weights(seed: int = 0, dtype: Any = np.float32) -> dict[str, Any]:
    """Return the parameters of `logits`, as NumPy arrays."""
    rng = np.random.default_rng(seed)
    return {
        "hidden": {"kernel": rng.normal(size=(PIXELS, 16)).astype(dtype) / 8, "bias": np.zeros(16, dtype)},
        "out": rng.normal(size=(16, CLASSES)).astype(dtype),
    }


def logits(parameters: Any, images: Any) -> Any:
    """Return the logits of a network of two layers, for images of JAX or NumPy in either layout of one's own."""
    x = images.reshape(len(images), -1).astype(parameters["out"].dtype)
    hidden = x @ parameters["hidden"]["kernel"] + parameters["hidden"]["bias"]
    return hidden * (hidden > 0) @ parameters["out"]


def check_same(native: Any, plain: Callable[[Any], Any], tolerance: float = 1e-5, **options: Any) -> Any:
    """Compare logits and the gradient of what was brought with its library's own answers; return its model.

    `plain` takes images (N, H, W, C) in float32.
    """
    images = drawn()
    model = rc.wrap(native, device="cpu", **options)
    classifier = Classifier(model)
    received = classifier.logits(images)
    assert received.dtype == np.float32
    expected, pull_back = jax.vjp(lambda x: plain(x).astype(jnp.float32), jnp.asarray(images))
    np.testing.assert_allclose(received, expected, atol=tolerance, rtol=tolerance)
    v = np.random.default_rng(1).normal(size=received.shape).astype(np.float32)
    for asked in (classifier, compiled := classifier.compile(images)):
        gradient = asked.vjp(images, v)
        assert gradient.dtype == np.float32
        np.testing.assert_allclose(gradient, pull_back(v)[0], atol=2 * tolerance, rtol=2 * tolerance)
    assert compiled is not classifier
    np.testing.assert_allclose(compiled.logits(images), received, atol=1e-4)
    check_model("m", classifier, images, received.argmax(axis=1))
    return model


# a function, and a pair -----------------------------------------------------------------------------------------------

FUNCTIONS: dict[str, tuple[str, Callable[[Any], Any], dict[str, Any]]] = {
    "a function of images": ('rc.wrap(function, framework="jax")', lambda p: partial(logits, p), {"framework": "jax"}),
    "a function from jax.jit": ("rc.wrap(jax.jit(function))", lambda p: jax.jit(partial(logits, p)), {}),
    "a pair (apply, parameters)": ("rc.wrap((apply, parameters))", lambda p: (logits, p), {}),
    "a pair whose apply comes from jax.jit": (
        "rc.wrap((jax.jit(apply), parameters))",
        lambda p: (jax.jit(logits), p),
        {},
    ),
    "a pair of a function of one image": (
        "rc.wrap((jax.vmap(apply, (None, 0)), parameters))",
        lambda p: (jax.vmap(lambda parameters, image: logits(parameters, image[None])[0], (None, 0)), p),
        {},
    ),
}


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=brought(what=what, typed=typed)) for what, (typed, *_) in FUNCTIONS.items()]
)
def test_a_function(what: str, tmp_path: Path) -> None:
    _, make, options = FUNCTIONS[what]
    plain, images = weights(), drawn()
    parameters = jax.tree.map(jnp.asarray, plain)
    model = check_same(make(parameters), partial(logits, parameters), **options)
    classifier = Classifier(model)
    np.testing.assert_allclose(classifier.logits(images), logits(plain, images), atol=1e-5)
    assert (classifier.weights_digest is not None) == ("pair" in what)
    compared(model, images, tmp_path)


def digest_of(seed: int) -> str | None:
    return Classifier(rc.wrap((logits, weights(seed)), device="cpu")).weights_digest


def test_parameters_tell_pairs_apart() -> None:
    assert digest_of(0) == digest_of(0) != digest_of(1)
    backwards = dict(reversed(weights().items()))
    assert Classifier(rc.wrap((logits, backwards), device="cpu")).weights_digest == digest_of(0)
    code = "import test_brought_jax; print(test_brought_jax.digest_of(0))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    assert done.stdout.strip() == digest_of(0)


def test_parameters_are_those_of_when_it_was_wrapped() -> None:
    parameters, images = weights(), drawn()
    classifier = Classifier(rc.wrap((logits, parameters), device="cpu"))
    parameters["out"][:] = 0
    np.testing.assert_allclose(classifier.logits(images), logits(weights(), images), atol=1e-5)


def test_trainings_of_a_pair_share_their_programs() -> None:
    from robustcmp.frameworks import jax as adapter

    def asked(seed: int) -> None:
        classifier = Classifier(rc.wrap((logits, weights(seed)), device="cpu")).compile(drawn())
        np.testing.assert_allclose(classifier.logits(drawn()), logits(weights(seed), drawn()), atol=1e-5)

    asked(0)
    before = set(adapter._programs)
    asked(1)
    assert set(adapter._programs) == before


def test_what_is_no_array_stays_as_it_is() -> None:
    def apply(parameters: Any, images: Any) -> Any:
        x = images.reshape(len(images), -1) if parameters["flat"] else images
        return parameters["activation"](x @ parameters["kernel"]) * parameters["scale"]

    kernel = np.random.default_rng(0).normal(size=(PIXELS, CLASSES)).astype(np.float32)
    parameters = {"kernel": kernel, "flat": True, "activation": jnp.tanh, "scale": 2.0, "none": None}
    check_same((apply, parameters), partial(apply, parameters), tolerance=1e-4)


# precision ------------------------------------------------------------------------------------------------------------

PRECISIONS = {"float16": 2e-2, "bfloat16": 2e-1, "float64": 1e-5}


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(
            name, marks=brought(what=f"a pair with parameters in {name}", typed="rc.wrap((apply, parameters))")
        )
        for name in PRECISIONS
    ],
)
def test_parameters_in_another_precision(dtype: str, tmp_path: Path) -> None:
    parameters = weights(dtype=jnp.dtype(dtype))
    model = check_same((logits, parameters), partial(logits, weights()), PRECISIONS[dtype])
    compared(model, drawn(), tmp_path)


def halfway(parameters: Any, images: Any) -> Any:
    """Compute in float16 inside, with parameters and logits in float32."""
    half = jax.tree.map(lambda array: array.astype(jnp.float16), parameters)
    return logits(half, images).astype(jnp.float32)


@pytest.mark.parametrize(("apply", "dtype"), [(logits, "float16"), (logits, "bfloat16"), (halfway, "float32")])
def test_gradients_below_the_smallest_float16_arrive(apply: Any, dtype: str) -> None:
    images, v = drawn(), np.zeros((N, CLASSES), np.float32)
    v[:, 0], v[0] = 1e-12, 0  # one image has no gradient
    received = Classifier(rc.wrap((apply, weights(dtype=jnp.dtype(dtype))), device="cpu")).vjp(images, v)
    expected = Classifier(rc.wrap((logits, weights()), device="cpu")).vjp(images, v)
    assert not received[0].any()
    np.testing.assert_allclose(received * 1e12, expected * 1e12, atol=5e-2)


# libraries ------------------------------------------------------------------------------------------------------------


def flax_linen() -> tuple[Any, Any]:
    """Return a module with batch norm and dropout, and its variables, with statistics that are not the first ones."""
    linen = pytest.importorskip("flax.linen", reason="flax is not installed")

    class Network(linen.Module):  # type: ignore[misc, name-defined]
        @linen.compact
        def __call__(self, x: Any, train: bool = False) -> Any:
            x = linen.Conv(4, (3, 3), padding="VALID")(x)
            x = linen.relu(linen.BatchNorm(use_running_average=not train)(x)).reshape(len(x), -1)
            return linen.Dense(CLASSES)(linen.Dropout(0.5, deterministic=not train)(x))

    module = Network()
    variables = module.init(jax.random.key(0), jnp.asarray(drawn(2)))
    return module, variables | {"batch_stats": jax.tree.map(lambda array: array + 0.25, variables["batch_stats"])}


def flax_nnx(train: bool = False) -> Any:
    nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")

    class Network(nnx.Module):  # type: ignore[misc, name-defined]
        def __init__(self, rngs: Any):
            self.conv = nnx.Conv(3, 4, (3, 3), padding="VALID", rngs=rngs)
            self.norm = nnx.BatchNorm(4, rngs=rngs)
            self.dropout = nnx.Dropout(0.5, rngs=rngs)
            self.out = nnx.Linear(4 * (SIDE - 2) ** 2, CLASSES, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = nnx.relu(self.norm(self.conv(x))).reshape(len(x), -1)
            return self.out(self.dropout(x))

    network = Network(nnx.Rngs(0))
    network.norm.mean[...] += 0.25
    if not train:
        network.eval()
    return network


def equinox(state: bool = False, inference: bool = True, dtype: Any = None) -> Any:
    """Return a module of one image; with a batch norm a pair of it and its state."""
    eqx = pytest.importorskip("equinox", reason="equinox is not installed")

    class Network(eqx.Module):  # type: ignore[misc, name-defined]
        conv: Any
        norm: Any
        dropout: Any
        out: Any

        def __init__(self, key: Any):
            keys = jax.random.split(key, 2)
            self.conv = eqx.nn.Conv2d(3, 4, 3, key=keys[0])
            self.norm = eqx.nn.BatchNorm(4, axis_name="batch", mode="batch") if state else None
            self.dropout = eqx.nn.Dropout(0.5)
            self.out = eqx.nn.Linear(4 * (SIDE - 2) ** 2, CLASSES, key=keys[1])

        def __call__(self, image: Any, *states: Any) -> Any:
            x = self.conv(image)
            if self.norm is not None:
                x, *states = self.norm(x, *states)  # type: ignore[assignment]
            x = self.out(self.dropout(jax.nn.relu(x).reshape(-1)))
            return (x, *states) if states else x

    network, states = eqx.nn.make_with_state(Network)(jax.random.key(0))
    if state:  # train for a step, so that the statistics are not the first ones
        train = jax.vmap(network.norm, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        _, states = train(jax.vmap(network.conv)(drawn().transpose(0, 3, 1, 2)), states)
    network = eqx.nn.inference_mode(network, inference)
    if dtype is not None:
        network = jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_array(leaf) else leaf, network)
    return (network, states) if state else network


def one_by_one(network: Any, *states: Any) -> Callable[[Any], Any]:
    """Return what a module of Equinox answers to images (N, H, W, C), called by itself."""

    def answers(x: Any) -> Any:
        answer = jax.lax.map(lambda image: network(image.transpose(2, 0, 1), *states), x)
        return answer[0] if states else answer

    return answers


def with_state(both: Any, images: Any) -> Any:
    network, state = both
    return jax.vmap(lambda image: network(image, state)[0])(images)


def haiku(state: bool = False, dropout: float = 0.0) -> tuple[Any, Any]:
    """Return a transformed function and its parameters; with a batch norm the parameters and the state."""
    hk = pytest.importorskip("haiku", reason="dm-haiku is not installed")

    def forward(x: Any, train: bool = False) -> Any:
        x = hk.Conv2D(4, 3, padding="VALID")(x)
        if state:
            x = hk.BatchNorm(True, True, 0.9)(x, is_training=train)
        x = jax.nn.relu(x).reshape(len(x), -1)
        return hk.Linear(CLASSES)(hk.dropout(hk.next_rng_key(), dropout, x) if dropout else x)

    transformed = (hk.transform_with_state if state else hk.transform)(forward)
    parameters = transformed.init(jax.random.key(0), jnp.asarray(drawn()), True)
    if not dropout:
        transformed = hk.without_apply_rng(transformed)
    return transformed, parameters


def of_linen(typed: str) -> tuple[Any, Any, dict[str, Any]]:
    module, variables = flax_linen()
    bound = module.bind(variables)
    return (bound if "bind" in typed else (module.apply, variables)), bound, {}


def of_equinox(typed: str) -> tuple[Any, Any, dict[str, Any]]:
    if "state" in typed:
        both = equinox(state=True)
        return (with_state, both), one_by_one(*both), FIRST
    dtype = jnp.bfloat16 if "bfloat16" in typed else None
    module = equinox(dtype=dtype)
    native = (lambda net, x: jax.vmap(net)(x.astype("bfloat16")), module) if dtype else module
    return native, lambda x: one_by_one(module)(x.astype(dtype or x.dtype)), FIRST


def of_haiku(typed: str) -> tuple[Any, Any, dict[str, Any]]:
    transformed, parameters = haiku(state="state" in typed)
    if "state" in typed:
        return (
            (lambda both, x: transformed.apply(*both, x)[0], parameters),
            lambda x: transformed.apply(*parameters, x)[0],
            {},
        )
    return (transformed.apply, parameters), partial(transformed.apply, parameters), {}


LIBRARIES: dict[str, tuple[str, Callable[[str], tuple[Any, Any, dict[str, Any]]]]] = {
    "Flax linen: a module and its variables, with batch statistics": (
        "rc.wrap((partial(module.apply, train=False), variables))",
        of_linen,
    ),
    "Flax linen: a bound module": ("rc.wrap(module.bind(variables))", of_linen),
    "Flax nnx: a module with batch norm and dropout, after module.eval()": (
        "rc.wrap(module)",
        lambda _: (module := flax_nnx(), module, {}),
    ),
    "Equinox: a module of one image, channels first": (
        'rc.wrap(equinox.nn.inference_mode(module), data_format="channels_first")',
        of_equinox,
    ),
    "Equinox: a module with a state": (
        "rc.wrap((lambda both, x: jax.vmap(lambda image: both[0](image, both[1])[0])(x), (module, state)), "
        'data_format="channels_first")',
        of_equinox,
    ),
    "Equinox: a module in bfloat16": (
        'rc.wrap((lambda net, x: jax.vmap(net)(x.astype("bfloat16")), module), data_format="channels_first")',
        of_equinox,
    ),
    "Haiku: a transformed function and its parameters": (
        "rc.wrap((haiku.without_apply_rng(transformed).apply, parameters))",
        of_haiku,
    ),
    "Haiku: a transformed function with a state": (
        "rc.wrap((lambda both, x: transformed.apply(*both, None, x)[0], (parameters, state)))",
        of_haiku,
    ),
}


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=brought(what=what, typed=typed)) for what, (typed, _) in LIBRARIES.items()]
)
def test_a_library(what: str, tmp_path: Path) -> None:
    typed, make = LIBRARIES[what]
    native, plain, options = make(typed)
    model = check_same(native, plain, 0.05 if "bfloat16" in what else 1e-4, **options)
    assert Classifier(model).weights_digest
    compared(model, drawn(), tmp_path)


# messages -------------------------------------------------------------------------------------------------------------


def asked(native: Any, **options: Any) -> Any:
    return Classifier(rc.wrap(native, device="cpu", **options)).logits(drawn())


PLAIN = {"framework": "jax"}
MESSAGES: dict[str, tuple[str, str, Callable[[], Any], dict[str, Any], str]] = {
    "a function that uses NumPy inside": (
        "rc.wrap(jax.jit(function))",
        "the message: write it with jax.numpy, or pass functions of NumPy arrays",
        lambda: jax.jit(lambda x: np.asarray(x).reshape(len(x), -1)),
        {},
        r"cannot be traced, because it needs the values .*Tracer\w+Error: [^\n]*jax\.numpy.*wrap_functions",
    ),
    "a function that branches on values": (
        "rc.wrap((apply, parameters))",
        "the message: write it with jax.numpy and jax.lax",
        lambda: (lambda p, x: logits(p, x) if x.sum() > 0 else 0, weights()),
        {},
        r"cannot be traced.*jax\.numpy and jax\.lax",
    ),
    "a pair of a function of one image, without jax.vmap": (
        "rc.wrap((apply, parameters))",
        "the message: turn it into jax.vmap(apply, (None, 0))",
        lambda: (lambda p, image: image.reshape(-1) @ p["hidden"]["kernel"], weights()),
        {},
        r"failed on images of shape .*If it takes one image and no batch, pass jax\.vmap of it: jax\.vmap\(apply, \(No",
    ),
    "a function of one image, without jax.vmap": (
        'rc.wrap(function, framework="jax")',
        "the message: turn it into jax.vmap(function)",
        lambda: lambda image: image.reshape(-1)[:CLASSES],
        PLAIN,
        r"answers 24 images with the shape \(3,\). If it takes one image and no batch, pass jax\.vmap of it",
    ),
    "a plain function without framework=": (
        "rc.wrap(function)",
        "the message: pass framework=, or a pair (apply, parameters)",
        lambda: partial(logits, weights()),
        {},
        r"Pass framework= for a plain JAX function, or a pair \(apply, parameters\)",
    ),
    "a pair in the other order": (
        "rc.wrap((parameters, apply))",
        "the message: pass a pair (apply, parameters)",
        lambda: (weights(), logits),
        {},
        r"received a tuple \(dict, function\). Pass a pair \(apply, parameters\)",
    ),
    "the name of a file for the parameters": (
        'rc.wrap((apply, "a.npz"))',
        "the message: the second of the pair should hold arrays",
        lambda: (logits, "a.npz"),
        {},
        r"should hold arrays, received str",
    ),
    "parameters without values, of jax.eval_shape": (
        "rc.wrap((apply, parameters))",
        "the message: they are only shapes; load them",
        lambda: (logits, jax.eval_shape(lambda: jax.tree.map(jnp.asarray, weights()))),
        {},
        r"have no values.*Load them",
    ),
    "apply of Flax linen that answers updated batch statistics, too": (
        "rc.wrap((partial(module.apply, train=True, mutable=…), variables))",
        "the message: return the logits alone",
        lambda: (
            partial(flax_linen()[0].apply, train=True, mutable=["batch_stats"], rngs={"dropout": jax.random.key(0)}),
            flax_linen()[1],
        ),
        {},
        r"one tensor of logits, received a tuple\..*the logits alone",
    ),
    "apply of Flax linen in training mode": (
        "rc.wrap((partial(module.apply, train=True), variables))",
        "the message: pass partial(module.apply, train=False), and switch off dropout",
        lambda: (partial(flax_linen()[0].apply, train=True), flax_linen()[1]),
        {},
        r"Cannot update variable .*partial\(module\.apply, train=False\), and switch off dropout",
    ),
    "Flax linen: a module without its variables": (
        "rc.wrap(module)",
        "the message: pass the pair (module.apply, variables)",
        lambda: flax_linen()[0],
        {},
        r"received Network\. Pass a pair .*\(module\.apply, variables\) of Flax linen",
    ),
    "Flax linen: the module in place of its apply": (
        "rc.wrap((module, variables))",
        "the message: pass the pair (module.apply, variables)",
        flax_linen,
        {},
        r"received a tuple \(Network, dict\)\. Pass a pair .*\(module\.apply, variables\) of Flax linen",
    ),
    "Flax nnx: a module left in training mode": (
        "rc.wrap(module)",
        "the message: call module.eval() first",
        lambda: flax_nnx(train=True),
        {},
        r"training mode \((norm\.use_running_average|dropout\.deterministic) is False\).*Call module\.eval\(\) first",
    ),
    "Equinox: a module left in training mode": (
        'rc.wrap(module, data_format="channels_first")',
        "the message: call equinox.nn.inference_mode(module) first",
        lambda: equinox(inference=False),
        FIRST,
        r"Dropout requires a key.*equinox\.nn\.inference_mode\(module\) first",
    ),
    "Equinox: a module of images channels first, without data_format=": (
        "rc.wrap(equinox.nn.inference_mode(module))",
        'the message: pass data_format="channels_first"',
        equinox,
        {},
        r"in another layout or precision, pass data_format=",
    ),
    "Equinox: a module in bfloat16 without a cast of images": (
        'rc.wrap(module, data_format="channels_first")',
        "the message: cast images to its precision in apply",
        lambda: equinox(dtype=jnp.bfloat16),
        FIRST,
        r"precision, pass data_format=, or cast them in apply",
    ),
    "Equinox: a module with a state, alone": (
        'rc.wrap(module, data_format="channels_first")',
        "the message: pass a pair (apply, module)",
        lambda: equinox(state=True)[0],
        FIRST,
        r"of a module that has a state.*pass a pair \(apply, module\)",
    ),
    "Haiku: a transformed function without its parameters": (
        "rc.wrap(transformed)",
        "the message: pass the pair (haiku.without_apply_rng(transformed).apply, parameters)",
        lambda: haiku()[0],
        {},
        r"received Transformed\. Pass a pair .*haiku\.without_apply_rng\(transformed\)\.apply, parameters\) of Haiku",
    ),
    "Haiku: a transformed function in place of its apply": (
        "rc.wrap((transformed, parameters))",
        "the message: pass the pair (haiku.without_apply_rng(transformed).apply, parameters)",
        haiku,
        {},
        r"received a tuple \(Transformed, dict\)\. Pass a pair .*haiku\.without_apply_rng\(transformed\)\.apply",
    ),
    "Haiku: dropout that needs a random key": (
        "rc.wrap((transformed.apply, parameters))",
        "the message: switch off dropout",
        lambda: (lambda transformed, parameters: (transformed.apply, parameters))(*haiku(dropout=0.5)),
        {},
        r"RNG.*switch off dropout",
    ),
}


@pytest.mark.parametrize(
    "what",
    [pytest.param(what, marks=brought(what=what, typed=typed, got=got)) for what, (typed, got, *_) in MESSAGES.items()],
)
def test_a_message(what: str) -> None:
    *_, make, options, message = MESSAGES[what]
    native = make()
    with pytest.raises(RobustcmpError, match=message) as caught:
        asked(native, **options)
    assert "\n" not in str(caught.value)


def test_parameters_that_were_donated() -> None:
    parameters = jax.tree.map(jnp.asarray, weights())
    parameters["out"].delete()
    with pytest.raises(UsageError, match="donated to a compiled step"):
        rc.wrap((logits, parameters), device="cpu")


def of_the_batch(parameters: Any, images: Any) -> Any:
    answer = logits(parameters, images)
    return answer - answer.mean(axis=0)


@brought(
    what="batch norm by the statistics of the batch",
    typed="rc.wrap((apply, parameters))",
    got="the message: it answers an image differently beside other images; use running statistics",
)
def test_answers_that_depend_on_the_batch() -> None:
    model = rc.wrap((of_the_batch, weights()), device="cpu")
    with pytest.raises(ModelError, match=r"differently beside other images.*running statistics"):
        rc.evaluate({"m": model}, drawn(), np.zeros(N, np.int64), suite="smoke", progress=False)


# the command ----------------------------------------------------------------------------------------------------------

NETS = """
import numpy as np
import robustcmp as rc


def apply(parameters, images):
    return images.reshape(len(images), -1) @ parameters["kernel"]


def mine():
    train = rc.load_dataset("digits", split="train")
    x, classes = train.images.reshape(len(train.images), -1), np.eye(10)[train.labels]
    return apply, {"kernel": np.linalg.lstsq(x, classes, rcond=1e-3)[0].astype("float32")}
"""


@brought(what="a function of yours that returns a pair or a module", typed="robustcmp eval --weights jax=nets:mine")
def test_from_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("brought_nets.py").write_text(NETS)
    given = ["--dataset", "digits", "--suite", "smoke", "--images", "4", "--repeats", "1", "--json"]
    assert eval_command.main(["--weights", "jax=brought_nets:mine", *given]) == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["frameworks"] == ["jax"]
    assert summary["success_rate"]["jax"]["fgsm"] > 0
    manifest = json.loads(Path(summary["out"], "manifest.json").read_text())
    assert manifest["models"][0]["identity"]["weights"]
