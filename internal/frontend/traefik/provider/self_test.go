package provider

import (
	"slices"
	"strings"
	"testing"

	"fairlead/internal/model/gateway"
)

// TestMountedIDs finds the ID of the own container in the mounts that Docker and Podman make.
func TestMountedIDs(t *testing.T) {
	id, other := strings.Repeat("0a", longID/2), strings.Repeat("9f", longID/2)
	for name, c := range map[string]struct {
		mounts string
		want   []string
	}{
		"Docker": {"612 590 8:1 /var/lib/docker/containers/" + id + "/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n" +
			"613 590 8:1 /var/lib/docker/containers/" + id + "/hosts /etc/hosts rw - ext4 /dev/sda1 rw\n", []string{id}},
		"Podman": {"700 690 0:50 /containers/overlay-containers/" + id + "/userdata/hosts /etc/hosts rw - tmpfs tmpfs rw\n",
			[]string{id}},
		"in a volume of another engine": {"612 590 8:1 /volumes/" + other + "/_data/containers/" + id +
			"/hosts /etc/hosts rw - ext4 /dev/sda1 rw\n", []string{other, id}},
		"a host": {"30 1 8:1 / / rw - ext4 /dev/sda1 rw\n40 30 0:60 / /var/lib/docker/overlay2/" + id +
			"/merged rw - overlay overlay rw\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mountedIDs(c.mounts); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestOwnContainer checks that a container on several networks is reached via one that the gateway
// has, whichever way the gateway finds its own container.
func TestOwnContainer(t *testing.T) {
	const hardware, another = "02:42:0a:00:02:09", "02:42:00:00:00:01"
	for name, c := range map[string]struct {
		self self
		want string
	}{
		"by its ID":               {self{ids: []string{"gatew"}}, "http://10.0.2.1:80"},
		"by its address":          {self{addresses: map[string]string{"10.0.2.9": hardware}}, "http://10.0.2.1:80"},
		"an address elsewhere":    {self{addresses: map[string]string{"10.0.2.9": another}}, "http://10.0.1.1:80"},
		"not in a container":      {self{}, "http://10.0.1.1:80"},
		"in an unknown container": {self{ids: []string{"other"}}, "http://10.0.1.1:80"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeEngine()
			f.set("one", "", "", "")
			f.join("one", "back", "10.0.1.1", "")
			f.join("one", "front", "10.0.2.1", "")
			f.set("gateway", "", "", "")
			f.join("gateway", "front", "10.0.2.9", hardware)
			f.disable("gateway")
			d := newProvider(t, gateway.Docker{Endpoint: serve(t, f)}).(*Docker)
			d.self = c.self
			follow(t, d)("at the start", c.want)
		})
	}
}

// TestOwnNetworks checks that containers get requests when the gateway joins their network.
func TestOwnNetworks(t *testing.T) {
	f := newFakeEngine()
	f.set("one", "10.0.0.1", "", "")
	f.set("gateway", "", "", "")
	f.leave("gateway", "bridge")
	f.join("gateway", "front", "10.0.2.9", "")
	f.disable("gateway")
	d := newProvider(t, gateway.Docker{Endpoint: serve(t, f)}).(*Docker)
	d.self = self{ids: []string{"gateway"}}
	want := follow(t, d)
	want("without a network of both", "")
	f.join("gateway", "bridge", "10.0.0.9", "")
	f.networkEvent("connect", "gateway")
	want("after the gateway has joined", "http://10.0.0.1:80")
	f.leave("gateway", "bridge")
	f.networkEvent("disconnect", "gateway")
	want("after the gateway has left", "")
}

// TestOwnTask checks that tasks on several networks are reached via one that the gateway's task has.
func TestOwnTask(t *testing.T) {
	for name, own := range map[string]self{
		"by its ID":      {ids: []string{"gone", "cgateway"}},
		"by its address": {addresses: map[string]string{"10.0.2.9": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeSwarm{events: make(chan string)}
			web := taskOf("1", "front", "10.0.2.1/24", "running", "running")
			web["NetworksAttachments"] = append([]map[string]any{{"Network": map[string]any{"ID": "b",
				"Spec": map[string]any{"Name": "back"}}, "Addresses": []string{"10.0.1.1/24"}}},
				web["NetworksAttachments"].([]map[string]any)...)
			gatewayTask := taskOf("gateway", "front", "10.0.2.9/24", "running", "running")
			gatewayTask["ServiceID"] = "g"
			f.set(web, gatewayTask)
			s := newSwarmProvider(t, serve(t, f))
			s.self = own
			follow(t, s)("at the start", "http://10.0.2.1:80")
		})
	}
}
