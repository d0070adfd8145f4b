package dev.inlay;

/** How weights are rounded; all but NEAREST need calibration. */
public enum QuantizeMethod {
  NEAREST,
  /** Errors weighted by the mean squares of the inputs. */
  IMATRIX,
  GPTQ,
  AWQ,
  SMOOTHQUANT
}
