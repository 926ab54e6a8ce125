package serving

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// User is the user and group id of a serving process whose controlling process is root. It is
// a number that neither distributions nor systemd assign (they leave 65520 to 65533
// free), so that no other process has it: processes of one user may signal each other.
const User = 65529

// processName is what ss and top call the process.
const processName = "fairlead-serve"

// credential returns the user of a new serving process, nil if this process may not choose.
func credential() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: User, Gid: User}
}

// environment has what the process may know of this one's environment. It leaves out
// secrets, such as the credentials for DNS-01.
func environment() (env []string) {
	for _, text := range os.Environ() {
		name, _, _ := strings.Cut(text, "=")
		switch name {
		case "GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "GOTRACEBACK", "TZ", "TMPDIR", "SSL_CERT_FILE",
			"SSL_CERT_DIR", "LOCALDOMAIN", "RES_OPTIONS":
			env = append(env, text)
		}
	}
	return env
}

// confine gives up all capabilities and the possibility to get any, on all threads.
func confine() error {
	// The kernel names a process by its program, which is /proc/self/exe here.
	_ = os.WriteFile("/proc/self/comm", []byte(processName), 0)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil { // only root may trace it
		return fmt.Errorf("forbid to trace this process: %w", err)
	}
	if err := everywhere(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := everywhere(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	if err := dropCapabilities(); err != nil || os.Getuid() == User {
		return err
	}
	return restrict() // the user id does not: it is the controlling process's
}
