"use strict";
// A network of TensorFlow.js: a layers model whose description and weights come from the program.
{
  let model;

  robustcmp.load = async (header, weights) => {
    if (header.backend === "webgpu") await robustcmp.adapter();
    if (header.backend === "wasm") {
      const binary = new URL("tfjs-backend-wasm-simd.wasm", location.href).href;
      const names = ["tfjs-backend-wasm.wasm", "tfjs-backend-wasm-simd.wasm", "tfjs-backend-wasm-threaded-simd.wasm"];
      tf.wasm.setWasmPaths(Object.fromEntries(names.map((name) => [name, binary])));
    }
    if (!(await tf.setBackend(header.backend))) throw new Error(`there is no backend ${header.backend} here`);
    const artifacts = { modelTopology: header.topology, weightSpecs: header.weights, weightData: weights };
    model = await tf.loadLayersModel(tf.io.fromMemory(artifacts));
    const described = (tensors) => tensors.map(({ shape, dtype }) => ({ shape, dtype }));
    return [{ inputs: described(model.inputs), outputs: described(model.outputs) }];
  };

  robustcmp.ask = async (header, images) => {
    const logits = tf.tidy(() => model.predictOnBatch(tf.tensor(new Float32Array(images), header.shape)));
    const answer = [{ shape: logits.shape }, await logits.data()];
    logits.dispose();
    return answer;
  };
}
