"""Networks in pages of a real browser: TensorFlow.js and ONNX Runtime Web in Chromium without a screen."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.client
import http.server
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import as_at_a_terminal, waited_for
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp import frameworks
from robustcmp.deployments.sessions import Session
from robustcmp.deployments.web import browser, npm, onnxruntime_web, tfjs
from robustcmp.errors import DeploymentError
from robustcmp.files import user_cache
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model
from robustcmp.networks.architecture import (
    Architecture,
    BatchNorm,
    Conv,
    Dense,
    Flatten,
    GlobalAveragePool,
    MaxPool,
    Relu,
    Residual,
)

WHY = tfjs.RUNTIME.explain_absence()
needs_browser = pytest.mark.skipif(bool(WHY), reason=WHY)
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
CACHE = user_cache().resolve()  # read before `own_cache` hides it

ODD = Architecture(
    "odd",
    (11, 14, 2),
    (
        Conv("conv1", 5, 3, stride=2, padding=1),
        BatchNorm("norm1"),
        Relu("relu1"),
        Residual(
            "sum",
            (
                Conv("conv2", 6, 3, stride=2, padding=1),
                BatchNorm("norm2"),
                Relu("relu2"),
                Conv("conv3", 6, 3, padding=1),
            ),
            (Conv("shortcut", 6, 1, stride=2),),
        ),
        Residual("same", (Conv("conv4", 6, 5, padding=2),)),
        MaxPool("pool", 2),
        Flatten("flatten"),
        Dense("dense", 7),
        BatchNorm("norm3"),
        Dense("logits", 4),
    ),
)
POOLED = Architecture("pooled", (6, 9, 3), (Conv("conv1", 5, 2, padding=1), GlobalAveragePool("pool"), Dense("d", 3)))


@pytest.fixture(autouse=True)
def packages(own_cache: Path) -> None:
    """What the user has downloaded is no secret: it is checked at each use."""
    (CACHE / "npm").mkdir(parents=True, exist_ok=True)
    own_cache.mkdir()
    (own_cache / "npm").symlink_to(CACHE / "npm")


def skip_without(*wanted: npm.Package) -> None:
    try:
        for package in wanted:
            package.fetch()
    except DeploymentError as error:
        pytest.skip(str(error))


@pytest.fixture
def needs_tfjs(packages: None) -> None:
    skip_without(tfjs.TFJS, tfjs.WASM)


@pytest.fixture
def needs_onnxruntime(packages: None) -> None:
    skip_without(onnxruntime_web.PACKAGE)


def built(architecture: Architecture, framework: str = "torch") -> Model:
    """Return a network with weights that no layer could have by accident."""
    adapter: Any = frameworks.get_framework(framework)
    network = adapter.build(architecture, 3, "cpu")
    draws = np.random.default_rng(5)
    weights = {
        name: values + draws.normal(0, 0.2, values.shape).astype(np.float32)
        for name, values in adapter.get_weights(network, architecture).items()
    }
    weights = {name: np.abs(values) + 0.1 if name.endswith("variance") else values for name, values in weights.items()}
    adapter.set_weights(network, architecture, weights)
    model = rc.wrap(network.eval() if framework == "torch" else network, framework=framework)
    model.architecture = architecture
    return model


def asked(model: Model, images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the source's logits."""
    import torch

    with torch.no_grad():
        return np.asarray(model(torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))).numpy())


def distance(logits: NDArray[np.float32], source: NDArray[np.float32]) -> float:
    """Return the largest difference, as a share of the source's spread."""
    return float(np.abs(logits - source).max() / np.ptp(source))


def drawn(shape: tuple[int, ...], n: int = 40) -> NDArray[np.float32]:
    return np.random.default_rng(1).random((n, *shape), np.float32)


def in_page(model: Model, folder: Path, kind: str = "") -> Session:
    path = folder / "model.json"
    tfjs.RUNTIME.convert(model, kind, None, path)
    return tfjs.RUNTIME.load(path)


# TensorFlow.js


@needs_browser
@pytest.mark.usefixtures("needs_tfjs")
@pytest.mark.parametrize("architecture", [ODD, POOLED], ids=lambda architecture: architecture.name)
def test_every_layer_is_converted(tmp_path: Path, architecture: Architecture) -> None:
    model = built(architecture)
    images = drawn(architecture.input_shape)
    source = asked(model, images)
    kinds = [("", 1e-5), ("float16", 1e-2), ("int8", 0.2)]
    for kind, most in kinds if architecture == ODD else kinds[:1]:
        folder = tmp_path / f"kind{kind}"
        folder.mkdir()
        session = in_page(model, folder, kind)
        assert distance(session(images), source) < most, kind


@needs_browser
@pytest.mark.usefixtures("needs_tfjs")
def test_answers_depend_neither_on_other_images_nor_on_threads_nor_on_an_event_loop(tmp_path: Path) -> None:
    images = drawn(ODD.input_shape, browser.BATCH + 9)
    session = in_page(built(ODD), tmp_path)
    whole = session(images)
    assert len({row.tobytes() for row in whole}) == len(images)
    for size in (1, 3, browser.BATCH):
        parts = [session(images[start : start + size]) for start in range(0, len(images), size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(session(images[::-1]), whole[::-1])
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda i: session(images[i : i + 5]), [0, 5, 10, 15] * 5))
    for start, answer in zip([0, 5, 10, 15] * 5, answers, strict=True):
        np.testing.assert_array_equal(answer, whole[start : start + 5])

    async def in_a_notebook() -> NDArray[np.float32]:
        return tfjs.RUNTIME.load(tmp_path / "model.json")(images)

    np.testing.assert_array_equal(asyncio.run(in_a_notebook()), whole)


@needs_browser
@pytest.mark.usefixtures("needs_tfjs")
def test_files_beside_each_other_keep_their_weights(tmp_path: Path) -> None:
    images = rc.load_dataset("digits").images[:50]
    models = {
        name: rc.load_model("lenet1", framework="torch", dataset="digits", seed=seed) for seed, name in enumerate("ab")
    }
    for name, model in models.items():
        rc.deploy(model, "tfjs", path=tmp_path / f"{name}.json")
    for name, model in models.items():
        again = rc.open_deployed(tmp_path / f"{name}.json", "tfjs")
        np.testing.assert_allclose(Classifier(again).logits(images), Classifier(model).logits(images), atol=1e-3)


def test_smaller_weights_are_those_of_the_converter() -> None:
    about, stored = tfjs._store("w", np.asarray([-1.0, 0.0, 0.3, 2.0], np.float32), "int8")
    said = about["quantization"]
    back = stored * np.float32(said["scale"]) + np.float32(said["min"])
    assert back[1] == 0
    np.testing.assert_allclose(back, [-1, 0, 0.3, 2], atol=3 / 255)
    constant, stored = tfjs._store("w", np.full(3, 0.7, np.float32), "int8")
    np.testing.assert_allclose(stored * constant["quantization"]["scale"] + constant["quantization"]["min"], 0.7)


def test_a_network_of_ones_own_is_refused_with_what_to_do() -> None:
    import torch

    model = rc.wrap(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2)).eval())
    with pytest.raises(DeploymentError, match=r"Sequential.*tensorflowjs_converter.*model\.json"):
        tfjs._translate(model)


# Files from elsewhere


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A file as the converter writes it: two groups, of which one lies in two files."""
    dense = {"units": 2, "activation": "softmax", "use_bias": True, "name": "last"}
    layers = [
        {"class_name": "Flatten", "config": {"name": "flat", "batch_input_shape": [None, 2, 3, 1], "dtype": "float32"}},
        {"class_name": "Dense", "config": dense},
    ]
    config = {"class_name": "Sequential", "config": {"name": "strange", "layers": layers}}
    content = {
        "format": "layers-model",
        "modelTopology": {"keras_version": "2.15.0", "backend": "tensorflow", "model_config": config},
        "weightsManifest": [
            {
                "paths": ["group1-shard1of2.bin", "group1-shard2of2.bin"],
                "weights": [{"name": "last/kernel", "shape": [6, 2], "dtype": "float32"}],
            },
            {"paths": ["group2.bin"], "weights": [{"name": "last/bias", "shape": [2], "dtype": "float32"}]},
        ],
    }
    kernel = np.arange(12, dtype="<f4").tobytes()
    (tmp_path / "group1-shard1of2.bin").write_bytes(kernel[:20])
    (tmp_path / "group1-shard2of2.bin").write_bytes(kernel[20:])
    (tmp_path / "group2.bin").write_bytes(np.asarray([1, 2], "<f4").tobytes())
    (tmp_path / "model.json").write_text(json.dumps(content))
    return tmp_path / "model.json"


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


@needs_browser
@pytest.mark.usefixtures("needs_tfjs")
def test_a_model_from_elsewhere_answers(stranger: Path) -> None:
    images = drawn((2, 3, 1))
    logits = images.reshape(-1, 6) @ np.arange(12, dtype=np.float32).reshape(6, 2) + [1, 2]
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(tfjs.RUNTIME.load(stranger)(images), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["../group2.bin", "/etc/passwd", "https://example.org/w.bin", "..", "", 7, "link"])
def test_weights_lie_beside_their_file(stranger: Path, name: Any) -> None:
    (stranger.parent / "link").symlink_to("/etc/hostname")
    changed(stranger, lambda content: content["weightsManifest"][1].update(paths=[name]))
    with pytest.raises(DeploymentError, match="own folder"):
        tfjs._read_model(stranger)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content.update(format="graph-model"), "graph-model"),
        (lambda content: content.pop("modelTopology"), "modelTopology"),
        (lambda content: content.update(weightsManifest=7), "no layers model"),
        (
            lambda content: content["weightsManifest"][1]["weights"][0].update(shape=[3]),
            "expects 60 bytes.*received 56",
        ),
        (
            lambda content: content["weightsManifest"][1]["weights"][0].update(shape=[1]),
            "expects 52 bytes.*received 56",
        ),
        (lambda content: content["weightsManifest"][1]["weights"][0].update(shape=[-1]), "last/bias"),
        (lambda content: content["weightsManifest"][1]["weights"][0].update(shape=[10**12]), "expects .* bytes"),
        (lambda content: content["weightsManifest"][1]["weights"][0].update(dtype="string"), "string"),
        (lambda content: content["weightsManifest"][1].update(paths=["absent.bin"]), "absent.bin"),
    ],
)
def test_a_broken_model_is_one_clear_line(
    stranger: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    with pytest.raises(DeploymentError, match=said):
        tfjs.RUNTIME.load(changed(stranger, change))


# What can happen to a browser


def children(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def renderers(pid: int) -> list[int]:
    return [child for child in children(pid) if b"--type=renderer" in Path(f"/proc/{child}/cmdline").read_bytes()]


def driver(pid: int) -> int:
    """Return the process by which Playwright drives Chromium for a process."""
    [found] = [child for child in children(pid) if b"run-driver" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return found


@needs_browser
@needs_proc
@pytest.mark.usefixtures("needs_tfjs")
@pytest.mark.parametrize(
    "killed",
    [
        pytest.param("page", marks=pytest.mark.slow),
        "browser",
        pytest.param("driver and browser", marks=pytest.mark.slow),
    ],
)
def test_a_page_or_a_browser_that_dies_is_an_error_and_never_a_hang(tmp_path: Path, killed: str) -> None:
    images = drawn(ODD.input_shape, 4_000)
    session = in_page(built(ODD), tmp_path)
    first = session(images[:10])
    pid = driver(os.getpid())
    victims = renderers(pid) if killed == "page" else [pid, *children(pid)][killed == "browser" :]
    timer = threading.Timer(0.1, lambda: [os.kill(victim, signal.SIGKILL) for victim in victims])
    timer.start()
    with pytest.raises(DeploymentError, match=r"model\.json, in tfjs: .*(crashed|closed).*Open the file again"):
        session(np.tile(images, (50, 1, 1, 1)))
    with pytest.raises(DeploymentError, match="Open the file again"):
        session(images[:10])
    np.testing.assert_array_equal(tfjs.RUNTIME.load(tmp_path / "model.json")(images[:10]), first)


@needs_browser
@needs_proc
@pytest.mark.usefixtures("needs_tfjs")
def test_a_page_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = in_page(built(ODD), tmp_path)
    monkeypatch.setattr(browser, "ANSWER_SECONDS", 0.5)
    stopped = renderers(driver(os.getpid()))
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(DeploymentError, match=r"did not answer within 0\.5 seconds"):
            session(drawn(ODD.input_shape))
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


ASKING = """
import sys
from pathlib import Path
import numpy as np
from robustcmp.deployments.web import tfjs
session = tfjs.RUNTIME.load(Path(sys.argv[1]))
print("asking", flush=True)
while True:
    session(np.zeros((64, 11, 14, 2), np.float32))
"""


@needs_browser
@needs_proc
@pytest.mark.usefixtures("needs_tfjs")
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.slow, id="SIGINT"),
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow, id="SIGTERM"),
        pytest.param(signal.SIGKILL, id="SIGKILL"),
    ],
)
def test_nothing_is_left_of_a_browser_however_its_program_ends(tmp_path: Path, number: signal.Signals) -> None:
    tfjs.RUNTIME.convert(built(ODD), "", None, tmp_path / "model.json")
    process = subprocess.Popen(
        [*as_at_a_terminal(), sys.executable, "-c", ASKING, str(tmp_path / "model.json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"asking\n"
        started = children(process.pid)
        assert len(started) > 3
        said = [Path(f"/proc/{child}/cmdline").read_bytes() for child in started]
        profile = Path(
            next(filter(None, (re.findall(rb"--user-data-dir=([^\0]+)", line) for line in said)))[0].decode()
        )
        assert profile.is_dir()
        if number == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, number)  # as a terminal does
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
    assert waited_for(lambda: not any(Path(f"/proc/{child}/cmdline").exists() for child in started))
    assert not profile.exists()
    assert process.returncode == -number or (number == signal.SIGINT and b"KeyboardInterrupt" in errors)


@needs_browser
@needs_proc
@pytest.mark.usefixtures("needs_tfjs")
def test_a_session_closes_its_page_when_it_is_forgotten(tmp_path: Path) -> None:
    session: Any = in_page(built(ODD), tmp_path)
    before = len(browser._Handler.exchanges)
    del session
    assert waited_for(lambda: len(browser._Handler.exchanges) < before)


def test_without_chromium_nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(browser.CHROMIUM, str(tmp_path / "absent"))
    for runtime in (tfjs.RUNTIME, onnxruntime_web.RUNTIME):
        assert "absent" in runtime.explain_absence()
        assert browser.CHROMIUM in runtime.explain_absence()
    monkeypatch.delenv(browser.CHROMIUM)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Install Chromium" in tfjs.RUNTIME.explain_absence()
    assert tfjs.RUNTIME.version().endswith("Chromium unknown")


@needs_proc
def test_what_is_no_chromium_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\necho a library is missing >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv(browser.CHROMIUM, str(program))
    monkeypatch.setattr(browser, "_started", [])
    with pytest.raises(DeploymentError, match=r"Chromium.*a library is missing"):
        browser.start_page("a page", (), {})


def test_an_answer_that_comes_after_its_page_was_closed_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), browser._Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        connection.request("POST", "/gone/", b"\0" * 8, {"Shape": "[1, 2]"})
        assert connection.getresponse().status == 404
        server.shutdown()
    assert capfd.readouterr().err == ""


@needs_browser
def test_a_page_asks_nothing_of_the_net(tmp_path: Path) -> None:
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    script = tmp_path / "script.js"
    script.write_text(f"""
        const address = "http://127.0.0.1:{server.server_port}/";
        robustcmp.load = async () => {{
          const image = new Image();
          image.src = address + "image";
          await new Promise((resolve) => image.addEventListener("error", resolve));
          await fetch(address);
        }};
    """)
    page = browser.start_page("a page", ["script.js"], {"script.js": script})
    with pytest.raises(DeploymentError, match=r"a page: .*Failed to fetch"):
        page.load(b"")
    page.close()
    server.shutdown()
    server.server_close()
    assert asked == []


# Packages of npm


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[npm.Package]:
    """A package that npm finds in a registry on this machine, with an empty cache."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not here")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in (
            ("package.json", b'{"name": "@scope/small", "version": "1.2.3"}'),
            ("dist/x.js", b"let x;"),
        ):
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive.getvalue()).digest()).decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            dist = {"tarball": f"http://127.0.0.1:{server.server_port}/small.tgz", "integrity": integrity}
            version = {"name": "@scope/small", "version": "1.2.3", "dist": dist}
            said = {"name": "@scope/small", "dist-tags": {"latest": "1.2.3"}, "versions": {"1.2.3": version}}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(archive.getvalue() if self.path == "/small.tgz" else json.dumps(said).encode())

        def log_message(self, *arguments: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    monkeypatch.setenv("ROBUSTCMP_CACHE", str(tmp_path / "empty"))
    yield npm.Package("@scope/small", "1.2.3", integrity, {"package/dist/x.js": hashlib.sha256(b"let x;").hexdigest()})
    server.shutdown()
    server.server_close()


def test_a_package_is_fetched_once_and_checked_at_each_use(
    published: npm.Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = published.fetch()["x.js"]
    assert path.read_bytes() == b"let x;"
    path.write_bytes(b"let y;")
    assert published.fetch()["x.js"].read_bytes() == b"let x;"
    monkeypatch.setenv("PATH", "")
    assert published.fetch() == {"x.js": path}
    path.unlink()
    with pytest.raises(DeploymentError, match=r"npm is not installed\. Install Node\.js"):
        published.fetch()


def test_another_archive_is_refused(published: npm.Package) -> None:
    with pytest.raises(DeploymentError, match="npm fetched another archive"):
        replace(published, integrity="sha512-" + base64.b64encode(bytes(64)).decode()).fetch()
    with pytest.raises(DeploymentError, match=r"npm could not fetch @scope/small@9\.9\.9: .*npm pack"):
        replace(published, version="9.9.9").fetch()


# ONNX Runtime Web


def onnx_file(path: Path, shape: list[Any], kind: str = "FLOAT", axes: tuple[int, ...] = (2, 3)) -> Path:
    """Write the mean of every channel, twice as large."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    helper, number = onnx.helper, onnx.TensorProto
    nodes = [
        helper.make_node("Cast", ["images"], ["cast"], to=number.FLOAT),
        helper.make_node("ReduceMean", ["cast"], ["mean"], axes=axes, keepdims=0),
        helper.make_node("Add", ["mean", "mean"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("images", getattr(number, kind), shape)],
        [helper.make_tensor_value_info("logits", number.FLOAT, [shape[0] if shape else None, None])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@needs_browser
@pytest.mark.usefixtures("needs_onnxruntime")
@pytest.mark.parametrize(
    ("shape", "axes", "notes"),
    [
        (["n", 5, 7, 3], (1, 2), 0),
        ([None, 3, 5, 7], (2, 3), 1),
        ([1, 3, 5, 7], (2, 3), 2),
        ([6, 5, 7, 3], (1, 2), 1),
    ],
)
def test_an_onnx_file_answers_in_its_own_layout(
    tmp_path: Path, shape: list[Any], axes: tuple[int, int], notes: int
) -> None:
    session = onnxruntime_web.RUNTIME.load(onnx_file(tmp_path / "small.onnx", shape, axes=axes))
    assert session.layout.shape == (5, 7, 3)
    assert len(session.notes) == notes
    images = drawn((5, 7, 3), 47)
    logits = session(images)
    np.testing.assert_allclose(logits, 2 * images.mean((1, 2)), rtol=1e-5)
    np.testing.assert_array_equal(np.concatenate([session(images[i : i + 5]) for i in range(0, 47, 5)]), logits)


@needs_browser
@pytest.mark.usefixtures("needs_onnxruntime")
def test_a_broken_onnx_file_is_one_clear_line(tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "small.onnx", ["n", 3, 5, 7])
    content = path.read_bytes()
    for broken in (b"", b"no model", content[: len(content) // 2]):
        path.write_bytes(broken)
        with pytest.raises(DeploymentError, match=r"small\.onnx"):
            onnxruntime_web.RUNTIME.load(path)
    with pytest.raises(DeploymentError, match="cannot be read"):
        onnxruntime_web.RUNTIME.load(tmp_path / "absent.onnx")
