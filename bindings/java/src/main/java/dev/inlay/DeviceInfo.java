package dev.inlay;

/**
 * What an engine computes on.
 *
 * @param memoryBytes physical memory of the device
 * @param numProcessors multiprocessors of a GPU; threads on CPU
 * @param computeCapability of a GPU, times 10: 90 is 9.0; 0 on CPU
 */
public record DeviceInfo(Backend backend, long memoryBytes, int numProcessors, int computeCapability, String name) {
  DeviceInfo(InlayDeviceInfo from) {
    this(Backend.values()[from.getBackend()], from.getMemory_bytes(), (int) from.getNum_processors(), (int) from.getCompute_capability(),
        Text.string(from.getName()));
  }
}
