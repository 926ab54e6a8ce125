/* filter runs a command that may make only the named system calls, and is
 * killed with SIGSYS at any other: filter NAME... -- COMMAND [ARGUMENT...]
 */
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int i, call;

	for (i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		call = seccomp_syscall_resolve_name(argv[i]);
		/* Negative numbers are calls of other architectures. */
		if (call >= 0 && seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0)) {
			fprintf(stderr, "filter: cannot allow %s\n", argv[i]);
			return 1;
		}
	}
	if (i + 1 >= argc || seccomp_load(filter)) {
		fprintf(stderr, "filter: cannot load the filter\n");
		return 1;
	}
	execvp(argv[i + 1], argv + i + 1);
	perror("filter: run the command");
	return 1;
}
