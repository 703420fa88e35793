"""What a host sees of the caller's environment variables."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from robustcmp.hosts.environments import run

HOST = """
import os
import protocol

class Telling(protocol.Network):
    framework = "telling"

    version = "\\n".join("{}={}".format(*item) for item in sorted(os.environ.items()))

protocol.serve(Telling)
"""
SECRET = {
    "AWS_SECRET_ACCESS_KEY": "hunter2",
    "GITHUB_TOKEN": "hunter2",
    "HF_TOKEN": "hunter2",
    "SSH_AUTH_SOCK": "/tmp/hunter2",
    "HTTPS_PROXY": "http://me:hunter2@proxy",
    "PIP_INDEX_URL": "https://me:hunter2@index",
    "TF_API_KEY": "hunter2",
    "MY_OWN": "hunter2",
}
NEEDED = {
    "LC_ALL": "C.UTF-8",
    "TMPDIR": "/tmp",
    "THEANO_FLAGS": "floatX=float32",
    "KERAS_BACKEND": "theano",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "MKL_NUM_THREADS": "1",
    "LD_LIBRARY_PATH": "/usr/lib",
    "ROBUSTCMP_MINE": "yes",
}


def test_a_host_sees_what_it_needs_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (SECRET | NEEDED).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "host.py").write_text(HOST)
    host = run("telling", sys.executable, tmp_path / "host.py")
    seen = dict(line.split("=", 1) for line in host.greeting["version"].split("\n"))
    host.close()
    assert "hunter2" not in host.greeting["version"]
    assert SECRET.keys() & seen.keys() == set()
    assert NEEDED.items() <= seen.items()
    assert {"PATH", "HOME", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"} <= seen.keys()
