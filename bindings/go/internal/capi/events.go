package capi

/*
#include "glue.h"
#include <stdlib.h>
*/
import "C"

import "unsafe"

// TokenLogprob is inlay_token_logprob.
type TokenLogprob struct {
	Token   int32
	Logprob float32
}

// Event is inlay_event_info, copied: nothing in it is C's.
type Event struct {
	Kind        int32
	ID          uint64 // user_data
	Tokens      []int32
	Text        string
	Bytes       []byte
	Logprobs    []TokenLogprob
	TopLogprobs int
	Position    int64
	Logits      []float32
	Scores      []float32
	Embedding   []float32
	Finish      *Finish // of the last event
}

// Finish is what a request's last event says.
type Finish struct {
	Reason                                      int32
	Status                                      int32
	Message                                     string
	StopToken, StopString                       int32
	PromptTokens, CachedTokens, GeneratedTokens uint64
	QueueMicros, FirstTokenMicros, TotalMicros  uint64
}

// Batch takes an engine's events, many in one call. Not for several goroutines at once.
type Batch struct {
	memory *C.inlay_go_batch
}

// NewBatch allocates it; Free frees it.
func NewBatch() *Batch {
	return &Batch{(*C.inlay_go_batch)(C.calloc(1, C.sizeof_inlay_go_batch))}
}

// Free frees it.
func (b *Batch) Free() {
	C.free(unsafe.Pointer(b.memory))
	b.memory = nil
}

// Take hands every event that waits to visit, and returns the status that says why there are no more: TIMEOUT, or a failure.
func (b *Batch) Take(engine uintptr, visit func(*Event)) int32 {
	for {
		C.inlay_go_take(C.uintptr_t(engine), b.memory)
		for i := 0; i < int(b.memory.count); i++ {
			event := copyEvent(&b.memory.infos[i])
			event.ID = uint64(b.memory.ids[i])
			visit(&event)
		}
		if status := int32(b.memory.status); status != 0 {
			if b.memory.count > 0 {
				C.inlay_go_release(b.memory)
			}
			return status
		}
	}
}

// StepInfo is inlay_step_info.
type StepInfo struct {
	Requests, PrefillTokens, DecodeTokens, SampledTokens, MoreWork uint32
	Micros, PredictedMicros, OvershootMicros                       uint64
}

// Step is Inlay_engine_step, with the result in one call: a game steps for each frame.
func Step(engine uintptr, budgetMicros uint64, object *uintptr) (StepInfo, int32) {
	var info C.inlay_step_info
	var failure C.uintptr_t
	status := C.inlay_go_step(C.uintptr_t(engine), C.uint64_t(budgetMicros), &info, &failure)
	*object = uintptr(failure)
	return StepInfo{uint32(info.num_requests), uint32(info.prefill_tokens), uint32(info.decode_tokens), uint32(info.sampled_tokens),
		uint32(info.more_work), uint64(info.duration_us), uint64(info.predicted_us), uint64(info.overshoot_us)}, int32(status)
}

func copyEvent(info *C.inlay_event_info) Event {
	event := Event{Kind: int32(info.kind), Position: int64(info.position)}
	if n := int(info.num_tokens); n > 0 {
		event.Tokens = append([]int32(nil), unsafe.Slice((*int32)(unsafe.Pointer(info.tokens)), n)...)
	}
	if n := int(info.text_bytes); n > 0 {
		event.Text = string(unsafe.Slice((*byte)(unsafe.Pointer(info.text)), n))
	}
	if n := int(info.num_bytes); n > 0 {
		event.Bytes = append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(info.bytes)), n)...)
	}
	if n := int(info.num_logprobs); n > 0 {
		event.Logprobs = append([]TokenLogprob(nil), unsafe.Slice((*TokenLogprob)(unsafe.Pointer(info.logprobs)), n)...)
		event.TopLogprobs = int(info.top_logprobs)
	}
	if n := int(info.num_logits); n > 0 {
		event.Logits = append([]float32(nil), unsafe.Slice((*float32)(unsafe.Pointer(info.logits)), n)...)
	}
	if n := int(info.num_scores); n > 0 {
		event.Scores = append([]float32(nil), unsafe.Slice((*float32)(unsafe.Pointer(info.scores)), n)...)
	}
	if n := int(info.num_embedding); n > 0 {
		event.Embedding = append([]float32(nil), unsafe.Slice((*float32)(unsafe.Pointer(info.embedding)), n)...)
	}
	if info.kind == C.INLAY_EVENT_FINISHED {
		event.Finish = &Finish{
			Reason:           int32(info.finish_reason),
			Status:           int32(info.status),
			Message:          C.GoString(info.message),
			StopToken:        int32(info.stop_token),
			StopString:       int32(info.stop_string),
			PromptTokens:     uint64(info.prompt_tokens),
			CachedTokens:     uint64(info.cached_tokens),
			GeneratedTokens:  uint64(info.generated_tokens),
			QueueMicros:      uint64(info.queue_us),
			FirstTokenMicros: uint64(info.first_token_us),
			TotalMicros:      uint64(info.total_us),
		}
	}
	return event
}
