package doctor_test

import (
	"os/exec"
	"testing"

	"fairlead/internal/explain/doctor"
	"fairlead/internal/kernel/kerneltest"
)

// proxied is the target of a room's docker-proxy (RFC 5737: no container on a test machine
// has it).
const proxied = "198.51.100.99"

// TestProxyOfAnotherEngine: the doctor does not report a docker-proxy whose target is in
// another network namespace, because an engine that was not asked may have made it.
func TestProxyOfAnotherEngine(t *testing.T) {
	r := newRoom(t)
	r.dockerProxy()
	r.adjust = func(h *doctor.Host) { h.Engine = true }
	other := kerneltest.Netns(t)
	kerneltest.Run(t, other, "ip", "address", "add", proxied+"/32", "dev", "lo")
	inside := exec.Command("cat")
	in, err := inside.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Do(inside.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = inside.Wait() })
	if found := r.run("stale-docker-proxy"); len(found) > 0 {
		t.Errorf("reported although another namespace has its target: %+v", found)
	}
	kerneltest.Run(t, other, "ip", "address", "del", proxied+"/32", "dev", "lo")
	if found := r.run("stale-docker-proxy"); len(found) != 1 {
		t.Errorf("not reported without its target: %+v", found)
	}
}
