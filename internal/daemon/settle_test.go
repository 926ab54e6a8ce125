package daemon

import (
	"testing"

	"fairlead/internal/model"
)

// TestPrivateNetwork: a private network is removed with its last attachment.
func TestPrivateNetwork(t *testing.T) {
	child := func(name string) model.Attachment {
		return model.Attachment{Endpoint: model.Endpoint{Name: name, Network: "device-ib0-8001"}, Ref: name,
			Private: true}
	}
	w := model.Desired{Networks: []model.Network{{Name: "lan"}, {Name: "device-ib0-8001"}},
		Attachments: []model.Attachment{child("web"), child("app")}}
	one := w.WithoutSandboxes(map[string]bool{"web": true})
	if len(one.Networks) != 2 || len(one.Attachments) != 1 {
		t.Errorf("with one left: %+v", one)
	}
	if none := one.WithoutSandboxes(map[string]bool{"app": true}); len(none.Networks) != 1 ||
		none.Networks[0].Name != "lan" {
		t.Errorf("with none left: %+v", none)
	}
	kept := w
	kept.Attachments = []model.Attachment{child("web")}
	kept.Attachments[0].Keep = true
	if waits := kept.WithoutSandboxes(map[string]bool{"web": true}); len(waits.Networks) != 2 ||
		waits.Attachments[0].Sandbox != "" {
		t.Errorf("while the attachment waits: %+v", waits)
	}
}
