package dev.inlay;

/**
 * Counters of an engine; times in microseconds, memory in bytes. Counts are since it was made, but for what is there now:
 * models, sessions, running and waiting requests, KV blocks, memory.
 *
 * @param finishedRequests ended on their own: stop or length
 * @param evictions cached KV blocks dropped for others; what is missing is recomputed
 * @param stepMicros time inside steps
 * @param scheduleMicros of that, planning, reserving, building batches and committing
 * @param kvBlocksUsed that requests, pinned prefixes and reservations hold
 * @param mappedBytes weight files mapped, not counted in memoryBytes
 * @param kvBlocksCached held by nobody, kept for requests that begin alike
 * @param lookupTokens prompt tokens of requests that began
 * @param hitTokens of these, tokens whose KV was cached
 * @param queueTimeMicros from submit to the first step
 * @param timeToFirstTokenMicros from submit
 * @param interTokenTimeMicros from one token of a request to its next
 * @param requestTimeMicros from submit to the end
 * @param stepOvershootMicros of steps with a budget; 0 where it was kept
 * @param hostCacheBytes of KV that host caches hold now; neither these nor those below are counted in memoryBytes
 * @param hostCachePeakBytes the most that the caches of the models loaded now have held
 * @param hostCacheBudgetBytes host memory that these caches took when their models were loaded
 * @param diskCacheBytes of files of KV, those of earlier runs included
 * @param diskCacheBudgetBytes what these may take
 * @param expertHostBytes pinned host memory of experts that a GPU has no room for
 */
public record Stats(int numModels, int numSessions, int runningRequests, int waitingRequests, long submittedRequests,
    long finishedRequests, long cancelledRequests, long failedRequests, long preemptions, long evictions, long steps,
    long stepMicros, long scheduleMicros, long prefillTokens, long decodeTokens, long kvBlocksTotal, long kvBlocksUsed,
    long memoryBytes, long memoryPeakBytes, long memoryBudgetBytes, long weightBytes, long kvBytes, long workspaceBytes,
    long mappedBytes, long kvBlocksCached, long lookupTokens, long hitTokens, Distribution queueTimeMicros,
    Distribution timeToFirstTokenMicros, Distribution interTokenTimeMicros, Distribution requestTimeMicros,
    Distribution stepTimeMicros, Distribution scheduleTimeMicros, Distribution stepOvershootMicros,
    Distribution stepTokens, long hostCacheBytes, long hostCachePeakBytes, long hostCacheBudgetBytes, long diskCacheBytes,
    long diskCacheBudgetBytes, long expertHostBytes) {
  Stats(InlayStats from) {
    this((int) from.getNum_models(), (int) from.getNum_sessions(), (int) from.getRunning_requests(),
        (int) from.getWaiting_requests(), from.getSubmitted_requests(), from.getFinished_requests(),
        from.getCancelled_requests(), from.getFailed_requests(), from.getPreemptions(), from.getEvictions(),
        from.getSteps(), from.getStep_us(), from.getSchedule_us(), from.getPrefill_tokens(), from.getDecode_tokens(),
        from.getKv_blocks_total(), from.getKv_blocks_used(), from.getMemory_bytes(), from.getMemory_peak_bytes(),
        from.getMemory_budget_bytes(), from.getWeight_bytes(), from.getKv_bytes(), from.getWorkspace_bytes(),
        from.getMapped_bytes(), from.getKv_blocks_cached(), from.getLookup_tokens(), from.getHit_tokens(),
        new Distribution(from.getQueue_time_us()), new Distribution(from.getTime_to_first_token_us()),
        new Distribution(from.getInter_token_time_us()), new Distribution(from.getRequest_time_us()),
        new Distribution(from.getStep_time_us()), new Distribution(from.getSchedule_time_us()),
        new Distribution(from.getStep_overshoot_us()), new Distribution(from.getStep_tokens()),
        from.getHost_cache_bytes(), from.getHost_cache_peak_bytes(), from.getHost_cache_budget_bytes(),
        from.getDisk_cache_bytes(), from.getDisk_cache_budget_bytes(), from.getExpert_host_bytes());
  }
}
