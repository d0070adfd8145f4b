// How values cross: arrays are pinned for the length of a call, text is UTF-8 bytes, results are copied.
using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Text;
using static Inlay.Native.InlayNative;

namespace Inlay.Native
{
    // Keeps what a call points to in its place until it is disposed.
    internal sealed class Pins : IDisposable
    {
        private readonly List<GCHandle> held = new List<GCHandle>();

        public void Dispose()
        {
            foreach (GCHandle handle in held) handle.Free();
            held.Clear();
        }

        // Of plain values. Never null for an array: to the library null means that there is none.
        internal IntPtr Array<T>(T[] values) where T : struct
        {
            if (values == null) return IntPtr.Zero;
            GCHandle handle = GCHandle.Alloc(values.Length > 0 ? values : new T[1], GCHandleType.Pinned);
            held.Add(handle);
            return handle.AddrOfPinnedObject();
        }

        // Of bytes that end with a NUL, for parameters without a length.
        internal IntPtr CString(string value, string name)
        {
            if (value == null) return IntPtr.Zero;
            if (value.IndexOf('\0') >= 0) throw new ArgumentException("Must not contain a NUL character.", name);
            return Array(Utf8.GetBytes(value + "\0"));
        }

        internal IntPtr CStrings(IReadOnlyList<string> values, string name)
        {
            if (values == null || values.Count == 0) return IntPtr.Zero;
            var pointers = new IntPtr[values.Count];
            for (int i = 0; i < pointers.Length; ++i)
            {
                if (values[i] == null) throw new ArgumentException("Must not contain null.", name);
                pointers[i] = CString(values[i], name);
            }
            return Array(pointers);
        }
    }

    internal static class Utf8
    {
        private static readonly UTF8Encoding encoding = new UTF8Encoding(false, false);

        // Halves of surrogate pairs become U+FFFD.
        internal static byte[] GetBytes(string text) { return encoding.GetBytes(text); }

        internal static string GetString(byte[] bytes) { return encoding.GetString(bytes); }

        internal static string Copy(IntPtr text, ulong bytes) { return bytes == 0 ? "" : encoding.GetString(Values.Bytes(text, bytes)); }

        // Up to its NUL.
        internal static string Copy(IntPtr text)
        {
            if (text == IntPtr.Zero) return "";
            ulong bytes = 0;
            while (Marshal.ReadByte(text, (int)bytes) != 0) ++bytes;
            return Copy(text, bytes);
        }
    }

    // Copies of the library's arrays.
    internal static class Values
    {
        private static readonly byte[] noBytes = new byte[0];
        private static readonly int[] noInts = new int[0];

        internal static byte[] Bytes(IntPtr source, ulong count)
        {
            if (count == 0) return noBytes;
            var values = new byte[checked((int)count)];
            Marshal.Copy(source, values, 0, values.Length);
            return values;
        }

        internal static int[] Ints(IntPtr source, ulong count)
        {
            if (count == 0) return noInts;
            var values = new int[checked((int)count)];
            Marshal.Copy(source, values, 0, values.Length);
            return values;
        }

        internal static float[] Floats(IntPtr source, ulong count)
        {
            var values = new float[checked((int)count)];
            if (count > 0) Marshal.Copy(source, values, 0, values.Length);
            return values;
        }
    }

    // Takes what is in an inlay_buffer, and releases it.
    internal static class Buffers
    {
        internal static byte[] TakeBytes(IntPtr buffer)
        {
            try
            {
                return Values.Bytes(inlay_buffer_data(buffer), inlay_buffer_size(buffer));
            }
            finally
            {
                inlay_buffer_release(buffer);
            }
        }

        internal static string TakeText(IntPtr buffer) { return Utf8.GetString(TakeBytes(buffer)); }
    }

    // Numbers that the library has unsigned, and times in microseconds.
    internal static class Numbers
    {
        internal static uint UInt(int value, string name)
        {
            if (value < 0) throw new ArgumentOutOfRangeException(name, value, "Must not be negative.");
            return (uint)value;
        }

        internal static ulong ULong(long value, string name)
        {
            if (value < 0) throw new ArgumentOutOfRangeException(name, value, "Must not be negative.");
            return (ulong)value;
        }

        internal static ulong Microseconds(TimeSpan value, string name)
        {
            if (value < TimeSpan.Zero) throw new ArgumentOutOfRangeException(name, value, "Must not be negative.");
            // A time that is asked for, however short, is not the 0 that means none.
            return ((ulong)value.Ticks + 9) / 10;
        }

        internal static TimeSpan Time(ulong microseconds)
        {
            return microseconds > long.MaxValue / 10 ? TimeSpan.MaxValue : new TimeSpan((long)microseconds * 10);
        }

        // Counts and sizes; no real one is cut.
        internal static long Long(ulong value) { return value > long.MaxValue ? long.MaxValue : (long)value; }
    }
}
