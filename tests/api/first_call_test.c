/* fork() while another thread makes the process's very first call: the child, which has not that thread, must not wait for it.
 * A process of its own, where nothing was called before. What the library registers for forks takes long here, so that the
 * fork falls into it wherever it is done in a call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inlay/inlay.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Shaped like a handle of an error, so that it is looked for; null is not. */
#define FORGED ((inlay_error*)(uintptr_t)0x17)
static atomic_int in_main, in_call;

typedef int Register(void (*prepare)(void), void (*parent)(void), void (*child)(void), void* owner);

/* glibc's, of which pthread_atfork() is made, stands behind this one. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void* owner);
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void* owner) {
  Register* const real = (Register*)dlsym(RTLD_NEXT, "__register_atfork");
  if (atomic_load(&in_main)) {
    atomic_store(&in_call, 1);
    usleep(300000);
  }
  return real(prepare, parent, child, owner);
}

static void* FirstCall(void* unused) {
  inlay_error_release(FORGED);
  atomic_store(&in_call, 1);
  return unused;
}

int main(void) {
  pthread_t thread;
  pid_t child;
  int status = 0;
  atomic_store(&in_main, 1);
  if (pthread_create(&thread, NULL, FirstCall, NULL) != 0) return 1;
  while (!atomic_load(&in_call)) usleep(100);
  child = fork();
  if (child == 0) {
    alarm(20);
    _exit(inlay_error_status(FORGED) == INLAY_INVALID_HANDLE ? 0 : 2);
  }
  if (child < 0 || waitpid(child, &status, 0) != child || pthread_join(thread, NULL) != 0) return 1;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
  fprintf(stderr, "the child of a process whose first call was under way ended with %#x\n", (unsigned)status);
  return 1;
}
