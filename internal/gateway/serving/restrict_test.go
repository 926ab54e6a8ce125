package serving

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"fairlead/internal/child"

	"golang.org/x/sys/unix"
)

// sameUser is the variable that makes the role an attacker who has the user of the controlling
// process. Its value is a directory with a socket and a file of that user.
const sameUser = "FAIRLEAD_TEST_SAME_USER"

// hostileSameUser is what the attacker does, on several threads.
func hostileSameUser(dir string) int {
	if err := confine(); err != nil {
		fmt.Println(err)
		return 1
	}
	secret := filepath.Join(dir, "secret")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, err := net.Dial("unix", filepath.Join(dir, "docker.sock"))
			try("connect to Docker's socket", err)
			try("send a datagram", sendFromPair(filepath.Join(dir, "log.sock")))
			try("write the file", os.WriteFile(secret, nil, 0))
			try("truncate the file", os.Truncate(secret, 0))
			try("remove the file", os.Remove(secret))
			try("replace the file", os.Rename(filepath.Join(dir, "docker.sock"), secret))
			try("make a file", os.WriteFile(secret+".2", nil, 0o600))
		})
	}
	all.Wait()
	_, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
	fmt.Println(errno == unix.ENOSYS)
	temporary, err := os.CreateTemp("", "")
	if err == nil {
		err = os.Remove(temporary.Name())
	}
	l, failed := net.Listen("tcp", "127.0.0.1:0")
	fmt.Println("done", err, failed, l != nil)
	return 0
}

// sendFromPair sends to the path of a datagram socket, from a socket of a pair.
func sendFromPair(path string) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	return unix.Sendto(pair[0], []byte("x"), unix.MSG_DONTWAIT, &unix.SockaddrUnix{Name: path})
}

// TestHostileSameUser: where the processes have the same user, as in a container without
// CAP_SETUID, an attacker does not reach Docker, and changes no file.
func TestHostileSameUser(t *testing.T) {
	needRoot(t)
	t.Setenv("TMPDIR", t.TempDir())
	cmd := child.Self(Role)
	cmd.Env = append(cmd.Env, sameUser+"="+filesOfRoot(t))
	if said, err := cmd.CombinedOutput(); err != nil || string(said) != "true\ndone <nil> <nil> true\n" {
		t.Errorf("the attacker: %q %v", said, err)
	}
}
