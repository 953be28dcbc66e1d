#!/bin/bash
#SBATCH --job-name=distill
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@300
#
# Distil on two machines until the run has come to its planned end:
#
#     OUT=/shared/run sbatch slurm.sh --teacher /shared/teacher --student /shared/student --data /shared/chats.jsonl
#
# 300 s before the time limit Slurm signals this script (--signal=B:...), not the processes. It passes SIGTERM to them:
# they save the step and exit with 75, or with 130 while models are loaded or written, and the job is queued again. A run
# that fails is not. Slurm requeues a job after
# a preemption or a lost machine by itself (--requeue); then the run continues from its last checkpoint.

out=${OUT:?set it to a directory that all machines share}
endpoint=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):29500
resume=()
[ -e "$out/checkpoints/student-latest" ] && resume=(--resume latest --force)

srun reference-trainer launch --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node 4 \
  --rdzv-endpoint "$endpoint" --rdzv-id "$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}" \
  -- distill --device cuda --save-every 500 "$@" --out "$out" "${resume[@]}" &
step=$!
signalled=
trap 'signalled=1; kill -TERM "$step"' USR1 TERM

wait "$step"
code=$?
while [ "$code" -gt 128 ] && kill -0 "$step" 2>/dev/null; do # a signal has ended `wait`, not the run
  wait "$step"
  code=$?
done

if [ "$code" -eq 75 ] || { [ -n "$signalled" ] && [ "$code" -eq 130 ]; }; then # interrupted, not failed
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
