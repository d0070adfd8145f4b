// TracePackets: writes tracks, slices and counters as packets of
// api/proto/trace.proto. Knows the format but not what is traced. Source:
// google/perfetto, docs/reference/synthetic-track-event.md.
#ifndef INLAY_API_SRC_TRACE_PACKETS_H_
#define INLAY_API_SRC_TRACE_PACKETS_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "trace.pb.h"

namespace inlay::api {

struct Argument {
  const char* name;
  int64_t value;
  const char* text = nullptr;  // instead of the value
};
using Arguments = std::initializer_list<Argument>;

// A track and the time its events have come to.
struct Track {
  uint64_t uuid = 0;
  uint64_t now = 0;
  uint64_t At(uint64_t time) { return now = std::max(now, time); }
};

// Thread-compatible.
class TracePackets {
 public:
  // `begin`: nanoseconds, as all times; not after any event's.
  TracePackets(uint64_t begin, int32_t pid, const std::string& name)
      : begin_(begin), pid_(pid) {
    // Ids are to be unlike those of others, should traces be joined: the
    // fraction of the golden ratio spreads what differs little. Never 0, which
    // would be the whole trace's track.
    const uint64_t seed = begin ^ (static_cast<uint64_t>(pid_) << 32);
    next_uuid_ = ((seed * 0x9E3779B97F4A7C15ull) >> 1) | 1;
    trace::TrackDescriptor& track = NewDescriptor(&process_);
    track.mutable_process()->set_pid(pid_);
    track.mutable_process()->set_process_name(name);
    Append();
  }

  Track& process() { return process_; }
  Track Thread(const std::string& name) {
    Track made;
    trace::TrackDescriptor& track = NewDescriptor(&made);
    track.mutable_thread()->set_pid(pid_);
    // No thread of the system's: ids from 1 on are taken long since.
    track.mutable_thread()->set_tid(++num_threads_);
    track.mutable_thread()->set_thread_name(name);
    Append();
    return made;
  }
  Track Child(const std::string& name, const Track& parent) {
    Track made;
    // Says how its own children stand: in the order they began.
    NewChild(name, parent, &made)
        .set_child_ordering(trace::TrackDescriptor::CHRONOLOGICAL);
    Append();
    return made;
  }
  Track Counter(const std::string& name, trace::CounterDescriptor::Unit unit) {
    Track made;
    NewChild(name, process_, &made).mutable_counter()->set_unit(unit);
    Append();
    return made;
  }

  void Begin(Track& track, uint64_t time, const char* name,
             Arguments arguments = {}) {
    NewEvent(track, time, trace::TrackEvent::TYPE_SLICE_BEGIN, arguments)
        .set_name(name);
    Append();
  }
  void End(Track& track, uint64_t time, Arguments arguments = {}) {
    NewEvent(track, time, trace::TrackEvent::TYPE_SLICE_END, arguments);
    Append();
  }
  void Instant(Track& track, uint64_t time, const char* name,
               Arguments arguments) {
    NewEvent(track, time, trace::TrackEvent::TYPE_INSTANT, arguments)
        .set_name(name);
    Append();
  }
  void Count(Track& track, uint64_t time, int64_t value) {
    NewEvent(track, time, trace::TrackEvent::TYPE_COUNTER, {})
        .set_counter_value(value);
    Append();
  }

  std::string Take() { return std::move(bytes_); }

 private:
  trace::TracePacket& NewPacket(uint64_t time) {
    trace_.Clear();
    // An element that is made before there is room for it leaks where there is
    // no memory for the room.
    trace_.mutable_packet()->Reserve(1);
    trace::TracePacket& packet = *trace_.add_packet();
    packet.set_timestamp(time);
    packet.set_trusted_packet_sequence_id(1);
    return packet;
  }
  trace::TrackDescriptor& NewDescriptor(Track* track) {
    track->uuid = next_uuid_++;
    auto* made = NewPacket(begin_).mutable_track_descriptor();
    made->set_uuid(track->uuid);
    return *made;
  }
  trace::TrackDescriptor& NewChild(const std::string& name, const Track& parent,
                                   Track* track) {
    trace::TrackDescriptor& made = NewDescriptor(track);
    made.set_name(name);
    made.set_parent_uuid(parent.uuid);
    return made;
  }
  trace::TrackEvent& NewEvent(Track& track, uint64_t time,
                              trace::TrackEvent::Type type,
                              Arguments arguments) {
    trace::TrackEvent& event = *NewPacket(track.At(time)).mutable_track_event();
    event.set_type(type);
    event.set_track_uuid(track.uuid);
    event.mutable_debug_annotations()->Reserve(
        static_cast<int>(arguments.size()));
    for (const Argument& argument : arguments) {
      trace::DebugAnnotation& made = *event.add_debug_annotations();
      made.set_name(argument.name);
      if (argument.text != nullptr) {
        made.set_string_value(argument.text);
      } else {
        made.set_int_value(argument.value);
      }
    }
    return event;
  }
  // Serialised messages one behind the other are one message with the repeated
  // fields of both.
  void Append() { trace_.AppendToString(&bytes_); }

  const uint64_t begin_;
  const int32_t pid_;
  uint64_t next_uuid_;
  int64_t num_threads_ = 0;
  Track process_;
  trace::Trace trace_;  // of one packet, its memory used again
  std::string bytes_;
};

}  // namespace inlay::api

#endif  // INLAY_API_SRC_TRACE_PACKETS_H_
