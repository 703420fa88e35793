"use strict";
// A network of TensorFlow.js: a layers model whose description and weights come from the program.
{
  let model;

  robustcmp.load = async (header) => {
    const binary = new URL("tfjs-backend-wasm-simd.wasm", location.href).href;
    const names = ["tfjs-backend-wasm.wasm", "tfjs-backend-wasm-simd.wasm", "tfjs-backend-wasm-threaded-simd.wasm"];
    tf.wasm.setWasmPaths(Object.fromEntries(names.map((name) => [name, binary])));
    if (!(await tf.setBackend("wasm"))) throw new Error("there is no WebAssembly here");
    const weightData = await robustcmp.values();
    model = await tf.loadLayersModel(
      tf.io.fromMemory({ modelTopology: header.topology, weightSpecs: header.weights, weightData }),
    );
    const described = (tensors) => tensors.map(({ name, shape, dtype }) => ({ name, shape, dtype }));
    return { inputs: described(model.inputs), outputs: described(model.outputs) };
  };

  robustcmp.ask = async (header, images) => {
    const logits = tf.tidy(() => model.predictOnBatch(tf.tensor(new Float32Array(images), header.shape)));
    const answer = [logits.shape, await logits.data()];
    logits.dispose();
    return answer;
  };
}
