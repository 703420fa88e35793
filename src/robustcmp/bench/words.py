"""How a benchmark is put into words: what its times are of, and in which setting."""

from __future__ import annotations

from .performance import Performance
from .speed import Setting

TASKS = {"train": "training", "forward": "prediction", "forward-backward": "gradient"}
UNITS = {"epoch": "an epoch", "step": "a step", "call": "a call"}
DOES = {
    ("train", "epoch"): "trains an epoch of {model}",
    ("train", "step"): "takes a training step of {model}",
    ("forward", "call"): "predicts with {model}",
    ("forward-backward", "call"): "computes predictions and gradients of {model}",
}


def network(results: Performance) -> str:
    """Return the name of what is trained or predicts."""
    return str(results.manifest.about.get("model") or "the network")


def title(results: Performance) -> str:
    """Return the heading of a benchmark."""
    about = results.manifest.about
    what = " and ".join(dict.fromkeys("training" if task == "train" else "prediction" for task in results.tasks))
    where = f" on {about['dataset']}" if about.get("dataset") else ""
    return f"{network(results)}{where}: {what} measured"


def setting(results: Performance) -> str:
    """Say what was compared, how often, and on which machine."""
    environment = results.manifest.environment
    processor = environment.get("processor") or environment.get("machine") or "an unknown processor"
    devices = sorted({str(device) for device in results.processes.device}) if len(results.processes) else []
    threads = sorted({int(count) for count in results.processes.threads}) if len(results.processes) else []
    parts = [
        ", ".join(results.subjects),
        f"{results.repetitions} repetition{'s' * (results.repetitions != 1)}, each in a process of its own",
        f"{processor}, {' and '.join(f'{count} thread' + 's' * (count != 1) for count in threads)}".rstrip(", "),
        *(["on " + " and ".join(devices)] if devices and devices != ["cpu"] else []),
    ]
    return "; ".join(parts)


def where(setting: Setting) -> str:
    """Say in which setting, to stand after a verb."""
    images = f", {setting.images:,} images" if setting.images else ""
    return f"at batch {setting.batch_size}{images}"


def named(setting: Setting) -> str:
    """Return the name of a setting."""
    images = f", {setting.images:,} images" if setting.images else ""
    return f"{TASKS[setting.task]}, batch {setting.batch_size}{images}"
