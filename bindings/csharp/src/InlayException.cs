using System;
using Inlay.Native;
using static Inlay.Native.InlayNative;

namespace Inlay
{
    /// <summary>The library's status codes. Their values are pinned and only ever added to.</summary>
    public enum ErrorCode
    {
        /// <summary>No error.</summary>
        Ok = INLAY_OK,
        /// <summary>A value, file or text is not what it must be.</summary>
        InvalidArgument = INLAY_INVALID_ARGUMENT,
        /// <summary>A handle is null, released, foreign or of another type.</summary>
        InvalidHandle = INLAY_INVALID_HANDLE,
        /// <summary>The right call at the wrong moment: for example a second request in a busy session.</summary>
        InvalidState = INLAY_INVALID_STATE,
        /// <summary>A file, tensor, template, kernel or prefix that was named does not exist.</summary>
        NotFound = INLAY_NOT_FOUND,
        /// <summary>Well-formed, but this build cannot do it; the message names it.</summary>
        Unsupported = INLAY_UNSUPPORTED,
        /// <summary>Over a budget or limit of the engine; the message has the numbers.</summary>
        ResourceExhausted = INLAY_RESOURCE_EXHAUSTED,
        /// <summary>The allocator had no memory.</summary>
        OutOfMemory = INLAY_OUT_OF_MEMORY,
        /// <summary>Cancelled.</summary>
        Cancelled = INLAY_CANCELLED,
        /// <summary>Nothing within the time asked, or a request's deadline passed.</summary>
        Timeout = INLAY_TIMEOUT,
        /// <summary>The request's last event was already taken.</summary>
        End = INLAY_END,
        /// <summary>The engine was disposed.</summary>
        Closed = INLAY_CLOSED,
        /// <summary>The system refused to read or write a file.</summary>
        IOError = INLAY_IO_ERROR,
        /// <summary>The model produced NaN or infinity for this request.</summary>
        Numeric = INLAY_NUMERIC,
        /// <summary>The device failed; the engine can only be disposed.</summary>
        DeviceLost = INLAY_DEVICE_LOST,
        /// <summary>A bug in the library.</summary>
        Internal = INLAY_INTERNAL
    }

    /// <summary>An error of the library. Its message says what was wrong, the value got, the value allowed and the next step. The codes that
    /// programs act on have classes of their own; cancellation is an <see cref="OperationCanceledException"/>, and use after
    /// <c>Dispose</c> an <see cref="ObjectDisposedException"/>.</summary>
    public class InlayException : Exception
    {
        internal InlayException(ErrorCode code, string message) : base(message) { Code = code; }

        /// <summary>What kind of error it is.</summary>
        public ErrorCode Code { get; private set; }

        /// <summary>The code as the C header spells it, such as <c>INLAY_NOT_FOUND</c>.</summary>
        public string Name { get { return Utf8.Copy(inlay_status_name((int)Code)); } }
    }

    /// <summary>A value, file or text is not what it must be.</summary>
    public sealed class InlayArgumentException : InlayException
    {
        internal InlayArgumentException(string message) : base(ErrorCode.InvalidArgument, message) { }
    }

    /// <summary>The right call at the wrong moment, such as a second request in a busy session.</summary>
    public sealed class InlayStateException : InlayException
    {
        internal InlayStateException(string message) : base(ErrorCode.InvalidState, message) { }
    }

    /// <summary>What was named does not exist.</summary>
    public sealed class InlayNotFoundException : InlayException
    {
        internal InlayNotFoundException(string message) : base(ErrorCode.NotFound, message) { }
    }

    /// <summary>This build, model or device cannot do it.</summary>
    public sealed class InlayUnsupportedException : InlayException
    {
        internal InlayUnsupportedException(string message) : base(ErrorCode.Unsupported, message) { }
    }

    /// <summary>Over a budget or limit of the engine, or out of memory (<see cref="InlayException.Code"/> says which): try again later,
    /// or with less.</summary>
    public sealed class InlayResourceException : InlayException
    {
        internal InlayResourceException(ErrorCode code, string message) : base(code, message) { }
    }

    /// <summary>A request's deadline passed.</summary>
    public sealed class InlayTimeoutException : InlayException
    {
        internal InlayTimeoutException(string message) : base(ErrorCode.Timeout, message) { }
    }

    /// <summary>The system refused to read or write a file.</summary>
    public sealed class InlayIOException : InlayException
    {
        internal InlayIOException(string message) : base(ErrorCode.IOError, message) { }
    }

    internal static class Errors
    {
        // Throws unless OK. `error` is taken in any case.
        internal static void Check(int status, IntPtr error)
        {
            if (status != (int)ErrorCode.Ok) throw Take(status, error);
        }

        internal static Exception Take(int status, IntPtr error)
        {
            string message = Utf8.Copy(inlay_error_message(error));
            inlay_error_release(error);
            return Make((ErrorCode)status, message);
        }

        internal static Exception Make(ErrorCode code, string message)
        {
            if (message.Length == 0) message = Utf8.Copy(inlay_status_name((int)code));
            switch (code)
            {
                case ErrorCode.InvalidArgument: return new InlayArgumentException(message);
                case ErrorCode.InvalidState: return new InlayStateException(message);
                case ErrorCode.NotFound: return new InlayNotFoundException(message);
                case ErrorCode.Unsupported: return new InlayUnsupportedException(message);
                case ErrorCode.ResourceExhausted:
                case ErrorCode.OutOfMemory: return new InlayResourceException(code, message);
                case ErrorCode.Timeout: return new InlayTimeoutException(message);
                case ErrorCode.IOError: return new InlayIOException(message);
                case ErrorCode.Cancelled: return new OperationCanceledException(message);
                case ErrorCode.Closed: return new ObjectDisposedException(typeof(Engine).FullName, message);
                default: return new InlayException(code, message);
            }
        }
    }
}
