package dev.inlay;

/** The type a model's KV cache is kept in. */
public enum KvType {
  /** f32 on CPU; on CUDA the type of most weights. */
  AUTO,
  F32,
  F16,
  BF16,
  /** 8-bit integers with a scale for each token and head. */
  I8,
  /** 8-bit floats (e4m3) with the same scales. */
  F8,
  /** 4-bit integers with scale and offset: 5 bits an element. */
  Q4
}
