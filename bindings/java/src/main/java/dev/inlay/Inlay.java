package dev.inlay;

import java.nio.file.Path;

/** The library itself, and what needs no engine. */
public final class Inlay {
  static {
    NativeLoader.load();
  }

  private Inlay() {}

  /** Of the native library that is loaded, such as {@code "0.1.0"}. */
  public static String version() {
    return Text.string(InlayC.inlay_version());
  }

  /** Of the native library that is loaded. */
  public static int abiVersion() {
    return (int) InlayC.inlay_abi_version();
  }

  /**
   * What a model path holds, without loading weights: JSON with architecture, configuration, tensors, formats, and the memory that each
   * backend needs.
   */
  public static String inspect(String path) {
    Callbacks.refuseInside();
    byte[][] json = new byte[1][];
    InlayC.inlay_model_inspect(Text.terminated(path, "path"), json);
    return Text.string(json[0]);
  }

  /**
   * Writes a model as a GGUF file, or for some types as a Hugging Face folder, with its weights rounded; blocks until done.
   *
   * @return JSON: what each tensor became, with its error ({@code inlay_quantize} in inlay.h)
   * @throws InvalidArgumentException a type that does not exist (answered by the list), a method without calibration
   * @throws UnsupportedException what the format cannot say
   * @throws CancelledException the progress listener returned {@code false}
   */
  public static String quantize(String model, Path out, QuantizeOptions options) {
    Callbacks.refuseInside();
    byte[] from = Text.terminated(model, "model");
    byte[] to = Text.terminated(out.toString(), "out");
    byte[][] report = new byte[1][];
    try (Callbacks.Progress progress = new Callbacks.Progress(options.listener())) {
      InlayQuantizeOptions made = options.make(progress.number);
      try {
        InlayC.inlay_quantize(from, to, made, report);
      } catch (CancelledException e) {
        progress.rethrow();
        throw e;
      } finally {
        made.delete();
      }
    }
    return Text.string(report[0]);
  }
}
