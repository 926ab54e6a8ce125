package peer

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"fairlead/internal/child"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
)

// tapMTU is the MTU in bytes of a tap device whose program terminates every TCP
// connection: pasta's default, and what Podman sets for slirp4netns. It does not
// depend on the wire's.
const tapMTU = "65520"

// ownTmp runs a program with a private /tmp, which is removed when it ends. The
// workload's sandbox is mounted there as boundBox, because a program that drops
// its privileges at once may not open this process's descriptors. /tmp is covered
// last: commands may be there.
const ownTmp = `mount -t tmpfs none /mnt; : >/mnt/sandbox; mount --bind "$1" /mnt/sandbox; shift; ` +
	`mount --rbind /mnt /tmp; exec "$@"`

const boundBox = "/tmp/sandbox"

// unshareCommand gives a program private mounts.
var unshareCommand = rig.Program{Name: "unshare", Package: "util-linux"}

// userMode is the base of the programs that carry a sandbox's traffic through
// sockets of the host.
type userMode struct{ rig.Base }

// Proof implements rig.Maker.
func (u *userMode) Proof(w rig.Window, _ *result.Proof) *result.Proof {
	return rig.CPUProof(u.Path.Peer.Name, w.Ledger.Proxy)
}

// startUserMode starts a program on the server host for the workload's sandbox.
// Its output goes to said; the end of a pipe is its descriptor 3.
func startUserMode(
	ctx context.Context, r *rig.Rig, said io.Writer, pipe []*os.File, name string, args ...string,
) (*child.Process, error) {
	box, err := r.World.Sandbox(rig.Workload)
	if err != nil {
		return nil, err
	}
	path, err := program.Find(name)
	if err != nil {
		return nil, err
	}
	if target, err := os.Readlink(path); err == nil && filepath.IsAbs(target) {
		path = target // the link may be in /tmp, which the program does not see
	}
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-ec", ownTmp, "sh",
		program.ForOthers(box), path}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = said, said, pipe
	return child.Start(ctx, cmd, r.Place(r.World.Server(), rig.ProxyGroup))
}
