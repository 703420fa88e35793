"""A host of linear networks in plain NumPy, which can be told to go wrong: ``python linear_host.py FAULT SOCKET``."""

import os
import sys
import time

import numpy as np

import robustcmp.hosts

sys.path.insert(0, os.path.dirname(os.path.abspath(robustcmp.hosts.__file__)))
import protocol

FAULT = sys.argv[1]


class Linear(protocol.Host):
    framework = "linear"
    differences = {"initialisation": "normal, 0.1"}
    asked = 0

    def version(self):
        return "1.0"

    def build(self, architecture, seed):
        [flatten, dense] = architecture["layers"]
        assert (flatten["type"], dense["type"]) == ("Flatten", "Dense")
        values = np.random.RandomState(seed).normal(0, 0.1, (int(np.prod(architecture["input_shape"])), dense["units"]))
        name = dense["name"]
        return {f"{name}/kernel": values.astype("f4"), f"{name}/bias": np.zeros(dense["units"], "f4")}

    def get_weights(self, network):
        return network

    def set_weights(self, network, weights):
        network.update(weights)

    def logits(self, network, images):
        self.asked += 1
        kernel, bias = network.values()
        z = images.reshape(len(images), -1) @ kernel + bias
        if FAULT == "dies once" and self.asked == 3 and not os.path.exists("died"):
            open("died", "w").close()
            os._exit(7)
        if FAULT == "dies always":
            print("about to fall over", file=sys.stderr, flush=True)
            os._exit(7)
        if FAULT == "late":
            time.sleep(60)
        if FAULT == "raises":
            raise ValueError("no such thing as a digit")
        return {"short": z[:-1], "long": np.concatenate([z, z]), "nan": z * np.nan}.get(FAULT, z)

    def vjp(self, network, images, v):
        kernel, _ = network.values()
        return (v @ kernel.T).reshape(images.shape)

    def trainer(self, network, momentum, weight_decay):
        return {
            "network": network,
            "momentum": momentum,
            "decay": weight_decay,
            "v": {name: np.zeros_like(its) for name, its in network.items()},
        }

    def step(self, trainer, images, labels, learning_rate):
        network = trainer["network"]
        z = self.logits(network, images).astype("f8")
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        loss = -np.log(p[np.arange(len(p)), labels]).mean()
        p[np.arange(len(p)), labels] -= 1
        for name, gradient in zip(network, (images.reshape(len(p), -1).T @ p, p.sum(axis=0)), strict=True):
            v = trainer["v"][name]
            v *= trainer["momentum"]
            v += (gradient / len(p) + trainer["decay"] * network[name]).astype("f4")
            network[name] = network[name] - np.float32(learning_rate) * v
        return loss

    def velocity(self, trainer):
        return trainer["v"]

    def set_velocity(self, trainer, velocity):
        trainer["v"] = velocity


if FAULT == "no library":
    import theano_of_2018  # noqa: F401
if FAULT == "never greets":
    time.sleep(60)
if FAULT == "old protocol":
    protocol.VERSION = 0
if FAULT == "prints":
    print("Using NumPy backend.", flush=True)
if FAULT == "babbles":
    os.write(int(sys.argv[-1]), b"Using NumPy backend.\n")
if FAULT == "promises too much":
    os.write(int(sys.argv[-1]), b"RCMP" + (2**31).to_bytes(4, "little"))
protocol.serve(Linear)
