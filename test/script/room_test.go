package script_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"fairlead/internal/child"
	"fairlead/internal/kernel/netns"

	"github.com/rogpeppe/go-internal/testscript"
)

// furnish prepares a room as a host to which sandboxes can be attached: separate /run and /var/lib,
// no bpffs (the daemon mounts one in /run), a link to a LAN, a network device that can be moved, and
// sandboxes with the names that the documentation uses.
const furnish = `set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /sys/fs/bpf
mkdir /var/lib/nginx
for box in shop db lan; do ip netns add $box; ip -n $box link set lo up; done
ip link add eth0 type veth peer name host0 netns lan
ip -n lan link add lan0 type bridge
ip -n lan link set lan0 up
ip -n lan link set host0 master lan0 up
ip -n lan addr add 192.0.2.1/24 dev lan0
ip link set eth0 up
ip addr add 192.0.2.2/24 dev eth0
ip link add eth2 type veth peer name card0 netns lan
ip -n lan link set card0 master lan0 up
echo furnished
exec sleep infinity
`

// alone runs a command on a bare host: with this host's files until something else is mounted
// there, and without links. Processes that the command leaves running end with it. It has a time
// limit, because the test that started it may be killed.
const alone = `#!/bin/sh
exec timeout 600 unshare --mount --net --pid --fork --kill-child --mount-proc -- "$@"
`

// openRoom creates a separate host for a session. When the session ends, the host and all processes
// on it end. `room COMMAND…` runs a command on that host, and `alone COMMAND…` on a bare host of
// its own. They may take half an hour and ten minutes.
func openRoom(env *testscript.Env, bin string) error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	defer ns.Close()
	cmd := exec.Command("sh", "-c", furnish)
	cmd.Stderr = os.Stderr
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	p, err := child.Start(ctx, cmd, child.Place{Netns: ns.File(), Contained: true})
	if err != nil {
		end()
		return err
	}
	env.Defer(func() { end(); <-p.Done() })
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		return fmt.Errorf("prepare the room: %q, %w", line, err)
	}
	enter := fmt.Sprintf("#!/bin/sh\nexec timeout 1800 nsenter -t %d -n -m -p --wd=\"$PWD\" -- \"$@\"\n",
		cmd.Process.Pid)
	return errors.Join(os.WriteFile(filepath.Join(bin, "room"), []byte(enter), 0o755),
		os.WriteFile(filepath.Join(bin, "alone"), []byte(alone), 0o755))
}
