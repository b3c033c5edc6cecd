"""The keys of config.json and generation_config.json that nothing is made of, and why nothing has to be.

What else transformers knows of a family is a field of its settings, which is honoured or held to one value: see
docs/decisions/0054-every-key-has-its-place.md.
"""

ABOUT = frozenset(
    {
        *("model_type", "architectures", "transformers_version", "_name_or_path", "_commit_hash", "_from_model_config"),
        *("auto_map", "tokenizer_class", "task_specific_params", "prefix", "finetuning_task", "id2label", "label2id"),
        *("problem_type", "_num_labels", "num_labels", "model_max_length", "language"),
    }
)
"""Where a checkpoint comes from, and what others than the model look at: tokenizers, pipelines, heads."""
COMPUTING = frozenset(
    {
        *(
            "dtype",
            "torch_dtype",
            "use_cache",
            "return_dict",
            "output_hidden_states",
            "output_attentions",
            "torchscript",
        ),
        *("output_past", "chunk_size_feed_forward", "attn_implementation", "_attn_implementation", "pruned_heads"),
        *("reorder_and_upcast_attn", "deterministic_flash_attn", "reference_compile", "use_bfloat16", "xla_device"),
        *("repad_logits_with_grad",),
    }
)
"""How the same numbers are computed and returned. Those in 16 bits are another matter: `--precision`."""
TRAINING = frozenset(
    {
        *(
            "dropout",
            "attention_dropout",
            "activation_dropout",
            "classifier_dropout",
            "classif_dropout",
            "dropout_rate",
        ),
        *("hidden_dropout_prob", "attention_probs_dropout_prob", "qa_dropout", "seq_classif_dropout", "mlp_dropout"),
        *("embedding_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_first_dropout", "encoder_layerdrop"),
        *("decoder_layerdrop", "init_std", "initializer_range", "initializer_factor", "initializer_cutoff_factor"),
        *("gradient_checkpointing", "save_step", "sparse_pred_ignore_index", "sparse_prediction", "label_smoothing"),
    }
)
"""What only training looks at."""
HEADS = frozenset(
    {
        *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "decoder_bias"),
        *("classifier_pooling", "classifier_bias", "classifier_activation", "pooler_fc_size", "pooler_num_fc_layers"),
        *("pooler_num_attention_heads", "pooler_size_per_head", "pooler_type", "adapters"),
    }
)
"""Of heads that have no place in a package. Where the weights have one, it is refused."""
ELSEWHERE = frozenset(
    {
        *("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "tie_word_embeddings"),
        *("sinusoidal_pos_embds", "directionality"),
    }
)
"""What the tokenizer says of an encoder alone and the weights of a table; where a family's settings lack these."""
UNUSED = ABOUT | COMPUTING | TRAINING | HEADS | ELSEWHERE
"""Of config.json."""

OF_GENERATE = frozenset(
    {
        *("use_cache", "cache_implementation", "cache_config", "max_cache_len", "prefill_chunk_size"),
        *("compile_config", "disable_compile", "continuous_batching_config", "output_attentions", "output_scores"),
        *("output_hidden_states", "output_logits", "return_dict_in_generate", "_from_model_config"),
        *("transformers_version", "pad_token_id", "bos_token_id", "remove_invalid_values"),
        *("num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold"),
        *("assistant_lookbehind", "target_lookbehind", "assistant_ensemble_weight"),
        *("max_matching_ngram_size", "speculation_type"),
    }
)
"""Of generation_config.json: how tokens are computed and returned, not which.

Those of assistants need one, which a folder does not name; `remove_invalid_values` needs numbers that are none, which a
certificate finds.
"""
