// The library's handles. A SafeHandle counts the calls in flight, so that closing one under a call of another thread is safe, and is
// released by its finalizer where nobody closed it: the library allows that on any thread and in any order.
using System;
using System.Runtime.InteropServices;

namespace Inlay.Native
{
    internal abstract class NativeHandle : SafeHandle
    {
        protected NativeHandle() : base(IntPtr.Zero, true) { }

        public override bool IsInvalid { get { return handle == IntPtr.Zero; } }
    }

    internal sealed class EngineHandle : NativeHandle
    {
        // What the log callback finds its sink by: must outlive the engine, whose release may still log.
        internal GCHandle LogSink;

        protected override bool ReleaseHandle()
        {
            InlayNative.release_engine(handle);
            if (LogSink.IsAllocated) LogSink.Free();
            return true;
        }
    }

    internal sealed class ModelHandle : NativeHandle
    {
        // Where the library takes null for a model.
        internal static readonly ModelHandle None = new ModelHandle();

        protected override bool ReleaseHandle()
        {
            InlayNative.release_model(handle);
            return true;
        }
    }

    internal sealed class SessionHandle : NativeHandle
    {
        protected override bool ReleaseHandle()
        {
            InlayNative.release_session(handle);
            return true;
        }
    }

    internal sealed class PrefixHandle : NativeHandle
    {
        protected override bool ReleaseHandle()
        {
            InlayNative.release_prefix(handle);
            return true;
        }
    }

    internal sealed class RequestHandle : NativeHandle
    {
        internal EventRouter Router;
        internal IntPtr Id;

        protected override bool ReleaseHandle()
        {
            InlayNative.release_request(handle);
            if (Router != null) Router.Close(Id);
            return true;
        }
    }
}
