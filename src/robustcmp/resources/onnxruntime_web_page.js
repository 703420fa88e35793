"use strict";
// A network of ONNX Runtime Web: an ONNX file whose bytes come from the program.
{
  let session;

  robustcmp.load = async (header, file) => {
    if (header.backend === "webgpu") await robustcmp.adapter();
    ort.env.logLevel = "error";
    ort.env.wasm.numThreads = 1;
    ort.env.wasm.wasmPaths = new URL("./", location.href).href;
    session = await ort.InferenceSession.create(new Uint8Array(file), { executionProviders: [header.backend] });
    return [{ inputs: session.inputMetadata, outputs: session.outputMetadata }];
  };

  robustcmp.ask = async (header, images) => {
    const input = new ort.Tensor("float32", new Float32Array(images), header.shape);
    const { [header.output]: logits } = await session.run({ [header.input]: input }, [header.output]);
    const values = await logits.getData();
    input.dispose();
    logits.dispose();
    return [{ shape: logits.dims }, values];
  };
}
