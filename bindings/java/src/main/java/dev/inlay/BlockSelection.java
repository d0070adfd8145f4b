package dev.inlay;

/** How blocks of keys are chosen where a query does not see all of them. */
public enum BlockSelection {
  /** All are seen. */
  NONE,
  /** By the least and the most of each dimension of their keys. */
  BOUNDS,
  /** By two centroids of their keys. */
  KMEANS,
  /** By 128-bit hashes of their keys. */
  LSH
}
