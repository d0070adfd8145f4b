/* C code that the typemaps (typemaps.i) of Java call: Java's classes and exceptions, copies of arrays, and callbacks, which enter Java
   from any thread. */
%{
#include <stdlib.h>
#include <string.h>

/* Found when the library is loaded: a callback's thread may know no class but the system's. */
static JavaVM* java_vm;
static jclass java_callbacks;
static jmethodID java_log;
static jmethodID java_progress;
static jclass java_exception;
static jmethodID java_raise;

static jclass FindGlobalClass(JNIEnv* env, const char* name) {
  jclass local = (*env)->FindClass(env, name);
  return local == NULL ? NULL : (jclass)(*env)->NewGlobalRef(env, local);
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM* vm, void* reserved) {
  JNIEnv* env;
  (void)reserved;
  if ((*vm)->GetEnv(vm, (void**)&env, JNI_VERSION_1_8) != JNI_OK) return JNI_ERR;
  java_vm = vm;
  java_callbacks = FindGlobalClass(env, "dev/inlay/Callbacks");
  java_exception = FindGlobalClass(env, "dev/inlay/InlayException");
  if (java_callbacks == NULL || java_exception == NULL) return JNI_ERR;
  java_log = (*env)->GetStaticMethodID(env, java_callbacks, "log", "(JI[B)V");
  java_progress = (*env)->GetStaticMethodID(env, java_callbacks, "progress", "(JIF)I");
  java_raise = (*env)->GetStaticMethodID(env, java_exception, "raise", "(I[B)V");
  if (java_log == NULL || java_progress == NULL || java_raise == NULL) return JNI_ERR;
  return JNI_VERSION_1_8;
}

static void ThrowOutOfMemory(JNIEnv* env) {
  jclass type = (*env)->FindClass(env, "java/lang/OutOfMemoryError");
  if (type != NULL) (*env)->ThrowNew(env, type, "no native memory for a call's arguments");
}

/* Null, with OutOfMemoryError pending, when there is no room. */
static jbyteArray ToByteArray(JNIEnv* env, const char* bytes, size_t size) {
  jbyteArray array;
  if (size > 0x7ffffff7) {
    jclass type = (*env)->FindClass(env, "java/lang/OutOfMemoryError");
    if (type != NULL) (*env)->ThrowNew(env, type, "the result is larger than a Java array can be; write it to a file");
    return NULL;
  }
  array = (*env)->NewByteArray(env, (jsize)size);
  if (array != NULL && size != 0) (*env)->SetByteArrayRegion(env, array, 0, (jsize)size, (const jbyte*)bytes);
  return array;
}

static jintArray ToIntArray(JNIEnv* env, const int32_t* values, size_t count) {
  jintArray array = (*env)->NewIntArray(env, (jsize)count);
  if (array != NULL && count != 0) (*env)->SetIntArrayRegion(env, array, 0, (jsize)count, (const jint*)values);
  return array;
}

static jfloatArray ToFloatArray(JNIEnv* env, const float* values, size_t count) {
  jfloatArray array = (*env)->NewFloatArray(env, (jsize)count);
  if (array != NULL && count != 0) (*env)->SetFloatArrayRegion(env, array, 0, (jsize)count, values);
  return array;
}

/* True, with NullPointerException pending: JNI's functions for arrays end the process instead. */
static int IsNull(JNIEnv* env, jobject array) {
  jclass type;
  if (array != NULL) return 0;
  type = (*env)->FindClass(env, "java/lang/NullPointerException");
  if (type != NULL) (*env)->ThrowNew(env, type, "an argument is null");
  return 1;
}

/* A copy with a NUL behind it, to be freed; null with an exception pending. */
static char* CopyBytes(JNIEnv* env, jbyteArray array, size_t* size) {
  jsize length;
  char* copy;
  if (IsNull(env, array)) return NULL;
  length = (*env)->GetArrayLength(env, array);
  copy = (char*)malloc((size_t)length + 1);
  if (copy == NULL) {
    ThrowOutOfMemory(env);
    return NULL;
  }
  (*env)->GetByteArrayRegion(env, array, 0, length, (jbyte*)copy);
  copy[length] = 0;
  if (size != NULL) *size = (size_t)length;
  return copy;
}

static void FreeStrings(const char* const* strings, size_t count) {
  size_t i;
  for (i = 0; i < count; ++i) free((void*)strings[i]);
  free((void*)strings);
}

static const char** CopyStrings(JNIEnv* env, jobjectArray array, size_t* count) {
  jsize length, i;
  char** copy;
  if (IsNull(env, array)) return NULL;
  length = (*env)->GetArrayLength(env, array);
  copy = (char**)calloc((size_t)length + 1, sizeof(char*));
  if (copy == NULL) {
    ThrowOutOfMemory(env);
    return NULL;
  }
  for (i = 0; i < length; ++i) {
    jbyteArray string = (jbyteArray)(*env)->GetObjectArrayElement(env, array, i);
    copy[i] = CopyBytes(env, string, NULL);
    (*env)->DeleteLocalRef(env, string);
    if (copy[i] == NULL) {
      FreeStrings((const char* const*)copy, (size_t)length);
      return NULL;
    }
  }
  *count = (size_t)length;
  return (const char**)copy;
}

/* Throws for a failure. Takes the error. */
static void RaiseFor(JNIEnv* env, inlay_status status, inlay_error* error) {
  if (status != INLAY_OK && status != INLAY_TIMEOUT && status != INLAY_END && !(*env)->ExceptionCheck(env)) {
    const char* message = inlay_error_message(error);
    jbyteArray bytes = ToByteArray(env, message, strlen(message));
    if (bytes != NULL) (*env)->CallStaticVoidMethod(env, java_exception, java_raise, (jint)status, bytes);
  }
  inlay_error_release(error);
}

/* The environment of this thread, which is attached for the length of a callback if it is not Java's. */
static JNIEnv* EnterJava(int* attached) {
  JNIEnv* env = NULL;
  JavaVMAttachArgs arguments = {JNI_VERSION_1_8, "inlay-callback", NULL};
  *attached = 0;
  if ((*java_vm)->GetEnv(java_vm, (void**)&env, JNI_VERSION_1_8) == JNI_OK) return env;
  if ((*java_vm)->AttachCurrentThreadAsDaemon(java_vm, (void**)&env, &arguments) != JNI_OK) return NULL;
  *attached = 1;
  return env;
}

/* Callbacks.java catches what a listener throws; what is thrown here is out of memory or stack. */
static void LeaveJava(JNIEnv* env, int attached) {
  if ((*env)->ExceptionCheck(env)) (*env)->ExceptionClear(env);
  if (attached) (*java_vm)->DetachCurrentThread(java_vm);
}

static void OnLog(void* user, int32_t level, const char* message) {
  int attached;
  JNIEnv* env = EnterJava(&attached);
  jbyteArray bytes;
  if (env == NULL) return;
  bytes = ToByteArray(env, message, strlen(message));
  if (bytes != NULL) {
    (*env)->CallStaticVoidMethod(env, java_callbacks, java_log, (jlong)(intptr_t)user, (jint)level, bytes);
    if (!attached) (*env)->DeleteLocalRef(env, bytes);
  }
  LeaveJava(env, attached);
}

static int32_t OnProgress(void* user, int32_t stage, float fraction) {
  int attached;
  JNIEnv* env = EnterJava(&attached);
  int32_t cancel = 0;
  if (env == NULL) return 0;
  cancel = (*env)->CallStaticIntMethod(env, java_callbacks, java_progress, (jlong)(intptr_t)user, (jint)stage, (jfloat)fraction);
  if ((*env)->ExceptionCheck(env)) cancel = 1;
  LeaveJava(env, attached);
  return cancel;
}
%}
