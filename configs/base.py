"""Every field of a run, documented once, with the paper's recipe as its default. Experiments override what they change.

Run one with `python -m scope_jax.train --config=configs/NAME.py:METHOD --workdir=DIR`, and any field from the command
line: `--config.asr.beta=0.3`. A misspelt field stops at once.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    c = ConfigDict()
    c.method = "scope"  # name in logs and report
    c.seed = 0  # of parameters sampled, prompts drawn and completions
    c.stages = (("asr", 100), ("qpr", 100))  # (stage, updates), in order: outcome, asr, qpr or mixed
    c.reward = ""  # a function of your own, package.module:function, paid in place of the stages' rewards; empty: none
    c.mesh = "data=1"  # devices by axis, such as "data=8" or "data=2,fsdp=2,tensor=2"

    c.model = ConfigDict()
    c.model.path = ""  # Hugging Face folder: config, safetensors, tokenizer with chat template
    c.model.dtype = "float32"  # activations and matrix products: float32 or bfloat16
    c.model.param_dtype = "float32"  # the trained copy of the parameters, and the optimizer's moments
    c.model.remat = True  # recompute activations in the backward pass

    c.data = ConfigDict()
    c.data.train = ""  # a JSONL file, a folder prepared by TFDS, word_problems (the package's own), or chains
    c.data.eval = ""  # problems of the final evaluation, named likewise; empty: held-out chains, else data.train
    c.data.skip_bad = False  # count and list malformed lines instead of stopping
    c.data.style = "math"  # words around a problem: math (instructions), examples (two solved problems), bare (none)
    c.data.chains = ConfigDict()  # the embedded task
    c.data.chains.train = 4000  # problems
    c.data.chains.eval = 256
    c.data.chains.min_steps = 4
    c.data.chains.max_steps = 5
    c.data.chains.hard_share = 0.95  # share of steps that carry or borrow
    c.data.chains.seed = 1  # of the problems, not of the run: every run trains and is tested on the same ones

    c.rollout = ConfigDict()
    c.rollout.prompts = 48  # P prompts a step
    c.rollout.group = 8  # G rollouts a prompt
    c.rollout.temperature = 1.0  # the policy that is optimised is softmax(logits / temperature)
    c.rollout.top_k = 0  # 0 is off; truncation makes sampler and trainer differ
    c.rollout.top_p = 1.0  # 1.0 is off
    c.rollout.max_prompt_tokens = 1024  # longer prompts are dropped, and counted; arrays are as wide as the data needs
    c.rollout.max_scaffold_tokens = 2048  # problems with a longer scaffolded prompt are never routed
    c.rollout.max_new_tokens = 8192  # N; an answer that it cuts off is none
    c.rollout.length_buckets = 4  # widths of updates that are compiled: quarters of max_new_tokens
    c.rollout.route_buckets = 4  # sizes of scaffolded batches that are compiled: quarters of P

    c.asr = ConfigDict()
    c.asr.tau = 0.5  # prompts whose mean outcome is below it are routed to their scaffold
    c.asr.beta = 0.5  # share of R_ASR that the sub-answers carry

    c.qpr = ConfigDict()
    c.qpr.reward = "process"  # process: R_QPR; holistic: one score a response; overlong: outcome plus length penalty
    c.qpr.penalties = (0.3, 0.5, 0.5, 0.8)  # lambda of mechanical, redundant, reversion, error (ours)
    c.qpr.alpha = 0.1  # strength of the length factor (ours)
    c.qpr.positive = True  # keep S_u
    c.qpr.penalise = True  # keep Phi
    c.qpr.length = True  # keep kappa
    c.qpr.overlong_share = 0.5  # share of max_new_tokens over which the overlong penalty grows

    c.judge = ConfigDict()  # who labels steps
    c.judge.kind = "rules"  # rules: on the device; llm: a chat endpoint; prm: a process reward model on the same devices
    c.judge.max_steps = 64  # steps of a completion that are told apart; the rest merge into the last
    c.judge.max_bytes = 16384  # rules: bytes of a completion that are read
    c.judge.model = ""  # llm: the model's name at the endpoint; prm: its Hugging Face folder
    c.judge.url = ""  # llm: an OpenAI-compatible endpoint (vLLM, SGLang, hosted), such as http://localhost:8000/v1
    c.judge.key_variable = ""  # llm: environment variable that holds the API key; empty: none is sent
    c.judge.timeout = 120.0  # llm: seconds a request
    c.judge.concurrency = 16  # llm: requests at once
    c.judge.retries = 4  # llm: further tries of a request that fails; after them the row is paid by its outcome
    c.judge.max_tokens = 4096  # llm: longest reply; a judge that thinks first needs more
    c.judge.extra = ""  # llm: more request fields, as JSON: '{"chat_template_kwargs": {"enable_thinking": false}}'
    c.judge.cache = ""  # llm: folder of judgements that are paid for, which runs may share; empty: WORKDIR/judge_cache
    c.judge.prm_error_below = 0.5  # prm: a step that is right with less probability is an error (ours)
    c.judge.prm_useful_from = 0.8  # prm: from this probability on it is useful, and mechanical between the two (ours)
    c.judge.prm_batch_tokens = 16384  # prm: tokens of one forward pass, padding included

    c.verifier = ConfigDict()
    c.verifier.workers = 2  # host processes for what the device leaves undecided; 0: those rows are masked out
    c.verifier.timeout = 5.0  # seconds an answer
    c.verifier.mode = "math"  # math: values and algebra; minerva: the text equality of DAPO's verifier, on the host only
    c.verifier.box = "last"  # which of several \boxed{} counts: last or first

    c.loss = ConfigDict()
    c.loss.algorithm = "grpo"  # grpo or gspo
    c.loss.aggregation = ""  # empty: the algorithm's own (grpo token-mean, gspo seq-mean-token-mean); or token-mean, seq-mean-token-mean, seq-mean-token-sum or constant
    c.loss.advantage_scale = "std"  # std, or none (centred only)
    c.loss.clip_low = 0.2  # gspo: 3e-4 and 4e-4 in its paper
    c.loss.clip_high = 0.2
    c.loss.kl = 0.0  # weight of the KL to the stage's first parameters; 0 keeps no reference in memory
    c.loss.kl_estimator = "k3"  # k2 or k3
    c.loss.micro_batches = 1  # parts of a batch whose gradients are added up; keep a part's rows a multiple of the devices
    c.loss.head_chunk = 128  # columns whose logits are in memory at once

    c.optimizer = ConfigDict()
    c.optimizer.learning_rate = 1e-6
    c.optimizer.warmup = 0  # updates of linear warm-up, in each stage
    c.optimizer.b1 = 0.9
    c.optimizer.b2 = 0.999
    c.optimizer.eps = 1e-8
    c.optimizer.weight_decay = 0.0
    c.optimizer.max_grad_norm = 1.0

    c.eval = ConfigDict()
    c.eval.problems = 256  # problems of the final evaluation; 0: all
    c.eval.samples = 4  # completions a problem
    c.eval.temperature = 1.0
    c.eval.max_new_tokens = 16384  # a truncated response is wrong
    c.eval.seed = 0  # of the completions; the same for every run, whatever its own seed
    c.eval.batch = 64  # prompts sampled together
    c.eval.resamples = 1000  # draws of the bootstrap behind each interval, seeded by eval.seed; 0: no intervals
    c.eval.second_judge = ""  # labels right completions too, to measure agreement: rules, llm or prm, set up by c.judge; empty: none

    c.checkpoint = ConfigDict()
    c.checkpoint.every = 20  # updates
    c.checkpoint.keep = 2  # most recent ones kept
    c.checkpoint.keep_every = 0  # and every so many updates for good; 0: none

    c.log = ConfigDict()
    c.log.seconds = 10.0  # between progress lines, where the output is no terminal
    c.log.rollouts_every = 10  # updates between entries of the rollout log
    c.log.rollouts = 8  # rollouts an entry
    c.log.tensorboard = True
    c.log.max_sampler_gap = 0.05  # a larger |log-prob of trainer - of sampler| is reported as it happens
    return c
