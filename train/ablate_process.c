/* The training process of a cell: start and end. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "train/ablate.h"
#include "train/file.h"
#include "train/text.h"

/* ---- start */

static mla_status write_config(const mla_ablate_run *run, int cell, char **path, mla_error *error) {
    char *text = mla_config_text(&run->sweep->cell[cell].config);
    *path = NULL;
    if (asprintf(path, "%s/configs/%s.yaml", run->folder, run->sweep->cell[cell].name) < 0) *path = NULL;
    const mla_status status = text && *path ? mla_file_write(*path, text, strlen(text), error)
                                            : mla_fail(error, MLA_NO_MEMORY, "out of memory for a config");
    free(text);
    return status;
}

static int open_output(const char *folder, int attempt) {
    char *path = mla_path_join(folder, "output.txt");
    const int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    free(path);
    if (fd >= 0) dprintf(fd, "==== attempt %d\n", attempt);
    return fd;
}

/* In the child, between fork and exec: system calls only.  A process group of its own keeps the terminal's Ctrl-C away,
 * which ablate passes on once; a second one would end the run without a checkpoint. */
_Noreturn static void become_training(char *const *words, int output, pid_t parent) {
    setpgid(0, 0);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1); /* it died before that */
#else
    (void)parent;
#endif
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    signal(SIGPIPE, SIG_DFL);
    execv("/proc/self/exe", words); /* the very program that runs, whatever has been installed meanwhile */
    execvp(program_invocation_name, words);
    static const char sentence[] = "mirrorla: the program could not be started again\n";
    (void)!write(STDERR_FILENO, sentence, sizeof sentence - 1);
    _exit(127);
}

mla_status mla_ablate_start(const mla_ablate_run *run, int cell, pid_t *pid, mla_error *error) {
    const char *folder = run->cell_folder[cell];
    char *config = NULL, threads[32];
    mla_status status = mla_folders_make(folder, NULL, error);
    if (status == MLA_OK) status = write_config(run, cell, &config, error);
    if (status == MLA_OK) status = mla_cell_state_write(&run->state[cell], folder, error);
    const int output = status == MLA_OK ? open_output(folder, run->state[cell].attempts) : -1;
    if (status == MLA_OK && output < 0)
        status = mla_fail(error, MLA_IO, "%s/output.txt: could not be opened: %s", folder, strerror(errno));
    if (status == MLA_OK) {
        snprintf(threads, sizeof threads, "%d", run->threads);
        const char *words[] = {"mirrorla", "train", config, "--out", folder, "--threads", threads, NULL, NULL, NULL};
        const char **last = words + 7;
        if (mla_cell_began(folder))
            *last = "--resume";
        else if (run->weights[cell])
            *last++ = "--finetune", *last = run->weights[cell];
        const pid_t parent = getpid();
        fflush(NULL);
        *pid = fork();
        if (*pid == 0) become_training((char *const *)(void *)words, output, parent);
        if (*pid < 0) status = mla_fail(error, MLA_IO, "a process could not be started: %s", strerror(errno));
    }
    if (output >= 0) close(output);
    free(config);
    return status;
}

/* ---- end */

/* The program's last own sentence among what the last attempt said, or else its last line; empty if there is none. */
static void last_words(char *out, size_t out_bytes, const char *folder) {
    enum { TAIL = 8192 };
    char text[TAIL + 1], *path = mla_path_join(folder, "output.txt"), *own = NULL, *last = NULL;
    FILE *file = path ? fopen(path, "r") : NULL;
    size_t length = 0;
    out[0] = 0;
    free(path);
    if (!file) return;
    if (fseek(file, -TAIL, SEEK_END) != 0) rewind(file);
    length = fread(text, 1, TAIL, file);
    fclose(file);
    text[length] = 0;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        if (strncmp(line, "==== attempt ", 13) == 0)
            own = last = NULL;
        else if (*line)
            last = line;
        if (strncmp(line, "mirrorla: ", 10) == 0) own = line + 10;
    }
    if (own || last) mla_text_escape(out, out_bytes, own ? own : last);
}

void mla_ablate_judge(const mla_ablate_run *run, int cell, int wait_status, mla_cell_state *state) {
    const char *folder = run->cell_folder[cell];
    const int signal_number = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    const int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
    char words[384];
    last_words(words, sizeof words, folder);
    state->reason[0] = 0;
    if (signal_number) {
        const bool crash = (signal_number == SIGABRT || signal_number == SIGSEGV || signal_number == SIGBUS) && *words;
        /* asked to end before it could handle that */
        state->status = signal_number == SIGTERM || signal_number == SIGINT ? MLA_CELL_STOPPED : MLA_CELL_KILLED;
        snprintf(state->reason, sizeof state->reason, "signal %d (%s)%s%s%s", signal_number, strsignal(signal_number),
                 signal_number == SIGKILL ? ", by somebody or for want of memory" : "", crash ? ": " : "",
                 crash ? words : "");
    } else if (code != 0) {
        state->status = code == 130 ? MLA_CELL_STOPPED : MLA_CELL_FAILED;
        snprintf(state->reason, sizeof state->reason, "exit code %d%s%s", code, *words ? ": " : "", words);
    } else {
        mla_cell_result result = {0};
        const mla_config *config = &run->sweep->cell[cell].config;
        const mla_status status = mla_cell_result_read(&result, folder, config->train.epochs, NULL);
        state->status = status == MLA_OK && result.tested ? MLA_CELL_DONE : MLA_CELL_FAILED;
        if (state->status == MLA_CELL_FAILED)
            snprintf(state->reason, sizeof state->reason, "its log has no test of the last epoch");
        free(result.rates);
    }
}
