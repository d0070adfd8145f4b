// INLAY_HOST_DEVICE: for functions that host and CUDA devices both run.
#ifndef INLAY_KERNELS_SAMPLE_HOST_DEVICE_H_
#define INLAY_KERNELS_SAMPLE_HOST_DEVICE_H_

#ifdef __CUDACC__
#define INLAY_HOST_DEVICE __host__ __device__
#else
#define INLAY_HOST_DEVICE
#endif

#endif  // INLAY_KERNELS_SAMPLE_HOST_DEVICE_H_
