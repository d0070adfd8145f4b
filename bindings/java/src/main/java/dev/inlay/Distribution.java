package dev.inlay;

/** Of everything since the engine was made; percentiles to within 1/16. */
public record Distribution(long count, long sum, long p50, long p90, long p99, long max) {
  Distribution(InlayDistribution from) {
    this(from.getCount(), from.getSum(), from.getP50(), from.getP90(), from.getP99(), from.getMax());
  }

  /** 0 when there is nothing. */
  public double mean() {
    return count == 0 ? 0 : (double) sum / count;
  }
}
