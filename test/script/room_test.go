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
	"fairlead/internal/kernel"

	"github.com/rogpeppe/go-internal/testscript"
)

// furnish makes a room a host that sandboxes can be attached on: its own /run
// and /var/lib, a link to a LAN, a card to hand over, and sandboxes by the
// names that the documentation uses.
const furnish = `set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
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

// alone runs a command on a bare host: the files and names of this one, until
// something else is mounted there, and no link. What it leaves running ends with
// it, and it ends in time, also when the test that began it has been killed.
const alone = `#!/bin/sh
exec timeout 600 unshare --mount --net --pid --fork --kill-child --mount-proc -- "$@"
`

// openRoom gives a session a host of its own, which goes with everything that
// runs in it when the session ends. `room COMMAND…` runs there, and `alone
// COMMAND…` on one more, for itself.
func openRoom(env *testscript.Env, bin string) error {
	ns, err := kernel.NewNetns()
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
		return fmt.Errorf("furnish the room: %q, %w", line, err)
	}
	enter := fmt.Sprintf("#!/bin/sh\nexec nsenter -t %d -n -m -p --wd=\"$PWD\" -- \"$@\"\n", cmd.Process.Pid)
	return errors.Join(os.WriteFile(filepath.Join(bin, "room"), []byte(enter), 0o755),
		os.WriteFile(filepath.Join(bin, "alone"), []byte(alone), 0o755))
}
