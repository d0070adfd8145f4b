package dev.inlay;

import java.util.List;
import java.util.Objects;

/** How {@link Inlay#quantize} rounds. What is not set has the library's default. Not thread-safe; may be used again. */
public final class QuantizeOptions {
  private final OptionList<InlayQuantizeOptions> settings = new OptionList<>();
  private final byte[] type;
  private ProgressListener listener;

  /** @param type such as "q8_0", "q4_k_m", "f16" or "u4_g128"; an unknown one is answered by the list */
  public QuantizeOptions(String type) {
    this.type = Text.terminated(type, "type");
  }

  /** The calling one included; 0 (default): one per core; at most 1024. */
  public QuantizeOptions threads(int threads) {
    settings.add(o -> o.setNum_threads(threads));
    return this;
  }

  /** {@code "PATTERN=TYPE"} for tensors by their published names; the last match counts. */
  public QuantizeOptions tensorTypes(String... patterns) {
    byte[][] bytes = Text.terminated(List.of(patterns), "tensorTypes");
    settings.add(o -> o.keepTensorTypes(bytes));
    return this;
  }

  /** Leave tokenizer and chat template out. */
  public QuantizeOptions noTokenizer(boolean on) {
    settings.add(o -> o.setNo_tokenizer(on ? 1 : 0));
    return this;
  }

  /** Default {@link QuantizeMethod#NEAREST}. */
  public QuantizeOptions method(QuantizeMethod method) {
    settings.add(o -> o.setMethod(method.ordinal()));
    return this;
  }

  /** GPTQ: inputs of largest squares first. */
  public QuantizeOptions actOrder(boolean on) {
    settings.add(o -> o.setAct_order(on ? 1 : 0));
    return this;
  }

  /** Texts such as the model is for. */
  public QuantizeOptions calibration(List<String> texts) {
    byte[][] bytes = Text.terminated(texts, "calibration");
    settings.add(o -> o.keepCalibration(bytes));
    return this;
  }

  /** Tokens that a text is cut into (default 512), and that are used in all (default 65536). */
  public QuantizeOptions calibrationTokens(int sequence, int total) {
    Check.notNegative(sequence, "sequence");
    Check.notNegative(total, "total");
    settings.add(o -> {
      o.setSequence_tokens(sequence);
      o.setCalibration_tokens(total);
    });
    return this;
  }

  /** SmoothQuant's alpha, 0 to 1; default 0.5. */
  public QuantizeOptions smoothing(double alpha) {
    settings.add(o -> o.setSmoothing((float) alpha));
    return this;
  }

  /** Bytes that calibration keeps of a layer's experts at a time: sums, then GPTQ's weights in float32; default 4 GiB. */
  public QuantizeOptions expertBytes(long bytes) {
    Check.notNegative(bytes, "bytes");
    settings.add(o -> o.setExpert_bytes(bytes));
    return this;
  }

  /** Bytes that all of it may take beside mapped files; default: what it needs. */
  public QuantizeOptions memoryLimit(long bytes) {
    Check.notNegative(bytes, "bytes");
    settings.add(o -> o.setMemory_limit(bytes));
    return this;
  }

  /** What llama.cpp's imatrix measured of the model, for {@link QuantizeMethod#IMATRIX} in calibration's place. */
  public QuantizeOptions imatrixPath(String path) {
    byte[] name = Text.terminated(path, "imatrixPath");
    settings.add(o -> o.keepImatrixPath(name));
    return this;
  }

  public QuantizeOptions progress(ProgressListener listener) {
    this.listener = Objects.requireNonNull(listener);
    return this;
  }

  ProgressListener listener() {
    return listener == null ? (stage, fraction) -> true : listener;
  }

  /** To be deleted. */
  InlayQuantizeOptions make(long progress) {
    InlayQuantizeOptions made = new InlayQuantizeOptions();
    made.keepType(type);
    settings.applyTo(made);
    if (listener != null) made.progressTo(progress);
    return made;
  }
}
