package dev.inlay;

import java.nio.file.Path;

/** How a model is loaded. What is not set has the library's default. Not thread-safe; may be used again after the call. */
public final class ModelOptions {
  private final OptionList<InlayModelOptions> settings = new OptionList<>();
  private ProgressListener listener;

  public ModelOptions() {}

  /** Only tokenizer and chat template; sessions are refused. */
  public ModelOptions vocabOnly(boolean on) {
    settings.add(o -> o.setVocab_only(on ? 1 : 0));
    return this;
  }

  /** Default {@link Weights#MAP}. */
  public ModelOptions weights(Weights weights) {
    settings.add(o -> o.setWeights(weights.ordinal()));
    return this;
  }

  /** Default {@link KvType#AUTO}. */
  public ModelOptions kvType(KvType type) {
    settings.add(o -> o.setKv_type(type.ordinal()));
    return this;
  }

  /** Tokens a block: a power of two from 8 to 256; 0 (default): 16. */
  public ModelOptions kvBlockSize(int tokens) {
    Check.notNegative(tokens, "kvBlockSize");
    settings.add(o -> o.setKv_block_size(tokens));
    return this;
  }

  /** Cap on a session's tokens; 0 (default): the model's own. */
  public ModelOptions maxContext(int tokens) {
    Check.notNegative(tokens, "maxContext");
    settings.add(o -> o.setMax_context(tokens));
    return this;
  }

  /** For this model's KV cache; 0 (default): room for 4 full contexts, within what there is. */
  public ModelOptions kvBudget(long bytes) {
    Check.notNegative(bytes, "kvBudget");
    settings.add(o -> o.setKv_budget_bytes(bytes));
    return this;
  }

  /** Forces kernels, for tests and measurements: {@code "gemm=cpu_scalar"}. */
  public ModelOptions kernels(String spec) {
    byte[] bytes = Text.terminated(spec, "kernels");
    settings.add(o -> o.keepKernels(bytes));
    return this;
  }

  /** Sparse attention by position, on CPU: {@code "window=1024,global=64"}; inlay.h lists what there is. Default: dense. */
  public ModelOptions attentionPattern(String pattern) {
    byte[] bytes = Text.terminated(pattern, "attentionPattern");
    settings.add(o -> o.keepAttentionPattern(bytes));
    return this;
  }

  /**
   * Sparse attention by content, on CPU: how blocks of keys are chosen for each query, which sees so many tokens of them, a
   * multiple of 16 from 64 (with {@link BlockSelection#NONE} 0). Default: dense.
   */
  public ModelOptions blockSelection(BlockSelection method, int selectedTokens) {
    Check.notNegative(selectedTokens, "selectedTokens");
    settings.add(o -> o.setBlock_selection(method.ordinal()));
    settings.add(o -> o.setSelected_tokens(selectedTokens));
    return this;
  }

  /** Of a GPU's memory for the experts of all layers; those it does not hold lie in host memory. 0 (default): all are on the GPU. */
  public ModelOptions expertDeviceMemory(long bytes) {
    Check.notNegative(bytes, "expertDeviceMemory");
    settings.add(o -> o.setExpert_device_bytes(bytes));
    return this;
  }

  public ModelOptions progress(ProgressListener listener) {
    this.listener = listener;
    return this;
  }

  /** Host memory for what the KV cache gives up, beside the engine's budget; default none. */
  public ModelOptions hostCache(long bytes) {
    Check.notNegative(bytes, "hostCache");
    settings.add(o -> o.setHost_cache_bytes(bytes));
    return this;
  }

  /** Below that, a folder for this model alone, made if missing, and what its files may take. */
  public ModelOptions diskCache(Path folder, long bytes) {
    Check.notNegative(bytes, "diskCache");
    byte[] name = Text.terminated(folder.toString(), "folder");
    settings.add(o -> {
      o.keepDiskCacheFolder(name);
      o.setDisk_cache_bytes(bytes);
    });
    return this;
  }

  /** One that always goes on, where none was given. */
  ProgressListener listener() {
    return listener == null ? (stage, fraction) -> true : listener;
  }

  /** To be deleted. */
  InlayModelOptions make(long progress) {
    InlayModelOptions made = new InlayModelOptions();
    settings.applyTo(made);
    if (listener != null) made.progressTo(progress);
    return made;
  }
}
