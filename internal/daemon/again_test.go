package daemon_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/test/place"
)

// takePort starts the daemon again while another process has a port that it has published. The proxy ends with the daemon.
func (w *world) takePort(addr string) (free func()) {
	w.Helper()
	w.stop()
	for end := time.Now().Add(place.Timeout); w.host.Do(listens(addr)) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatal("timeout: the proxy has ended")
		}
	}
	free = w.serves(addr)
	w.start()
	return free
}

// publishesOf returns the publishes of an attachment.
func (w *world) publishesOf(name string) (all []api.PublishedView) {
	for _, v := range w.Attachments() {
		if v.Name == name {
			all = v.Publishes
		}
	}
	return all
}

// TestFailedPublishAgain repeats requests for a publish whose port was taken when the daemon started. While it is
// taken, they fail, and change nothing for others. Then they publish it.
func TestFailedPublishAgain(t *testing.T) {
	publishes := published(model.ViaProxy, 8081)
	declared := api.Spec{Set: "site", Attachments: []api.Declared{{Publishes: publishes,
		Endpoint: model.Endpoint{Network: "lan", Sandbox: "netns:shop", Name: "shop"}}}}
	attach := api.AttachRequest{Endpoint: declared.Attachments[0].Endpoint, Publishes: publishes}
	for name, request := range map[string]struct{ first, again func(w *world) error }{
		"apply": {
			func(w *world) error { return second(w.Apply(t.Context(), declared, false)) },
			func(w *world) error { return second(w.Apply(t.Context(), declared, false)) }},
		"attach": {
			func(w *world) error { return second(w.Attach(t.Context(), attach)) },
			func(w *world) error { return second(w.Attach(t.Context(), attach)) }},
		"publish": {
			func(w *world) error { return second(w.Attach(t.Context(), attach)) },
			func(w *world) error {
				return second(w.Publish(t.Context(), api.PublishRequest{Target: "shop", Publishes: publishes}))
			}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).start()
			w.sh("ip link set lo up")
			w.network(lan)
			w.named("shop")
			if err := request.first(w); err != nil {
				t.Fatal(err)
			}
			free := w.takePort(":8081")
			if err := request.again(w); err == nil || !strings.Contains(err.Error(), "taken") {
				t.Errorf("while the port is taken, the request returns: %v", err)
			}
			if p := w.publishesOf("shop"); len(p) != 1 || !strings.Contains(p[0].Problem, "taken") {
				t.Errorf("while the port is taken, it publishes %+v", p)
			}
			w.attach(to(w.watchedSandbox()))
			free()
			if err := request.again(w); err != nil {
				t.Errorf("with the port, the request returns: %v", err)
			}
			if p := w.publishesOf("shop"); len(p) != 1 || p[0].Problem != "" {
				t.Errorf("with the port, it publishes %+v", p)
			}
			if w.host.Do(listens(":8081")) == nil {
				t.Error("nothing listens at the port")
			}
		})
	}
}

// TestFailedAttachmentAgain repeats the request for an attachment that has failed when the daemon started. It fails
// again, and other requests succeed as before, also a declaration.
func TestFailedAttachmentAgain(t *testing.T) {
	w := newWorld(t).start()
	w.network(lan)
	shop := to(w.watchedSandbox())
	shop.Name = "shop"
	w.attach(shop)
	w.stop()
	w.sh("ip link del fv-shop; ip link add fv-shop type bridge")
	w.start()
	if all := w.Attachments(); len(all) != 1 || all[0].Status != api.Broken {
		t.Fatalf("the attachment is not broken: %+v", all)
	}
	if _, err := w.Attach(context.Background(), shop); err == nil {
		t.Error("the request succeeds")
	}
	w.attach(to(w.watchedSandbox()))
	set := declared("web")
	set.Gateway = nil
	if _, err := w.Apply(t.Context(), set, false); err != nil {
		t.Errorf("a declaration without the attachment: %v", err)
	}
	w.sh("ip link del fv-shop")
	w.attach(shop)
}
