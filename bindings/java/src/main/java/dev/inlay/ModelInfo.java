package dev.inlay;

/**
 * What a model is.
 *
 * @param architecture as config.json has it
 * @param bytesPerDecode weights read for one token at batch 1
 * @param bosToken -1: none
 * @param eosToken the first of them; -1: none
 * @param embeddingSize elements of an embedding as the model's files say, through their Dense modules; with another pooling
 *     it has hiddenSize. 0: the files ask for what is not supported
 */
public record ModelInfo(int numLayers, String architecture, long vocabSize, long hiddenSize, long maxContext,
    long numParameters, long weightBytes, long bytesPerDecode, long kvBytesPerToken, long kvCapacityTokens, int bosToken,
    int eosToken, boolean hasTokenizer, boolean hasChatTemplate, long embeddingSize) {
  ModelInfo(InlayModelInfo from) {
    this((int) from.getNum_layers(), Text.string(from.getArchitecture()), from.getVocab_size(), from.getHidden_size(),
        from.getMax_context(), from.getNum_parameters(), from.getWeight_bytes(), from.getBytes_per_decode(),
        from.getKv_bytes_per_token(), from.getKv_capacity_tokens(), from.getBos_token(), from.getEos_token(),
        from.getHas_tokenizer() != 0, from.getHas_chat_template() != 0, from.getEmbedding_size());
  }
}
