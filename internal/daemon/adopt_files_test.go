package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// commanded creates an object of every kind as commands do: networks, an attachment with publishes, a
// device, a service. It returns the sandbox of an attachment that no file can express.
func (w *world) commanded() watchedSandbox {
	w.Helper()
	w.named("shop")
	w.sh("ip link add card0 type veth peer name card1")
	w.named("lab")
	w.network(lan)
	spare := model.Network{Name: "spare", Driver: model.DriverRouted,
		Subnets: []model.Subnet{{Prefix: prefix("10.88.0.0/24")}}}
	w.network(spare)
	w.attach(api.AttachRequest{Endpoint: model.Endpoint{Network: "lan", Sandbox: "netns:shop",
		Limit: model.Limit{Out: 1e8}}, Publishes: []model.Publish{port(8080, 80), port(8081, 81)}})
	w.attach(api.AttachRequest{Endpoint: model.Endpoint{Sandbox: "netns:lab", Prefixes: prefixes("192.0.2.7/24")},
		Device: "card0"})
	w.serve(site("front", at("172.30.0.9", 80)))
	b := w.watchedSandbox()
	w.attach(api.AttachRequest{Endpoint: model.Endpoint{Network: "lan", Sandbox: b.pid, Name: "passing"}})
	return b
}

func bridge(name, subnet string) model.Network {
	return model.Network{Name: name, Driver: model.DriverBridge, Subnets: []model.Subnet{{Prefix: prefix(subnet)}}}
}

// changes returns the changes as text, one per line.
func changes(r api.Result) string {
	var lines []string
	for _, c := range r.Changes {
		lines = append(lines, c.String())
	}
	return strings.Join(lines, "\n")
}

const allAdopted = `network lan: adopted
network spare: adopted
attachment shop: adopted
attachment lab: adopted
publish shop 8080/tcp: adopted
publish shop 8081/tcp: adopted
service front: adopted`

// rules returns the rules with their handles, and the links with their indices: both change if an
// object is created anew.
func (w *world) rules() string {
	w.Helper()
	// The kernel ends the detection of duplicate addresses at its own time.
	return w.sh("nft -a list ruleset; " + carried +
		"ip -o link; ip -o addr | sed 's/ tentative//'; ip route; ip -6 route; tc qdisc")
}

// TestAdopt applies the state that commands have created. Nothing on the host changes, and the
// objects belong to the files afterwards.
func TestAdopt(t *testing.T) {
	w := newWorld(t).start()
	before := w.snapshot()
	passing := w.commanded()
	state, notes := w.State()
	if len(notes) != 1 || !strings.Contains(notes[0], "attachment passing is left out") {
		t.Errorf("notes %q", notes)
	}
	r, err := w.Apply(t.Context(), state, true)
	if err != nil || changes(r) != allAdopted || r.Plan != "" || !r.Changed {
		t.Errorf("plan: %v\n%s\n%s", err, changes(r), r.Plan)
	}
	host := w.rules()
	if r = w.apply(state); changes(r) != allAdopted || len(r.Notes) != 1 || len(r.Attachments) != 2 {
		t.Errorf("apply: %+v", r)
	}
	if after := w.rules(); after != host {
		t.Errorf("the host has changed from\n%s\nto\n%s", host, after)
	}
	if again, _ := w.State(); asJSON(t, again) != asJSON(t, state) {
		t.Errorf("%s\nwant the state\n%s", asJSON(t, again), asJSON(t, state))
	}
	if r := w.apply(state); r.Changed {
		t.Errorf("apply again: %s", changes(r))
	}
	if _, err := w.Detach(t.Context(), api.DetachRequest{Name: "shop"}); api.CodeOf(err) != api.Conflict {
		t.Errorf("detach what files declare: %v", err)
	}
	w.unname("lab") // an adopted attachment waits for its sandbox
	w.until("it waits", func() bool { return len(w.Attachments()) == 3 && w.Attachments()[0].Status == api.Waiting })
	state.Services, state.Attachments = nil, state.Attachments[:1]
	if r := w.apply(state); !strings.Contains(changes(r), "service front: removed") {
		t.Errorf("apply less: %s", changes(r))
	}
	passing.kill()
	w.until("the process's attachment is gone", func() bool { return len(w.Attachments()) == 1 })
	w.apply(api.Spec{})
	w.sh("ip link del card0")
	w.unchanged(before)
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAdoptWhatDiffers refuses objects of commands that differ from the file, and changes them if the
// Spec says so. Objects of another set stay as they are.
func TestAdoptWhatDiffers(t *testing.T) {
	w := newWorld(t).start()
	w.commanded()
	w.apply(api.Spec{Set: "other", Networks: []model.Network{bridge("theirs", "10.89.0.0/24")}})
	state, _ := w.State()
	state.Networks[1].MTU = 1400 // spare
	state.Attachments[1].Limit.Out = 2e8
	state.Attachments[1].Publishes[1].Ports = model.Port(90)
	state.Services[0].Quorum = 2
	before := w.snapshot()
	_, err := w.Apply(t.Context(), state, false)
	for _, want := range []string{"networks[1]: network spare differs from the file, and a command created it",
		"attachments[1]: attachment shop differs", "services[0]: service front differs",
		"apply with --adopt so that the files change it"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	w.unchanged(before)
	state.Adopt = true
	want := allAdopted
	for _, object := range []string{"spare", "attachment shop", "8081/tcp", "front"} {
		want = strings.Replace(want, object+": adopted", object+": changed", 1)
	}
	r, err := w.Apply(t.Context(), state, true)
	if err != nil || changes(r) != want || r.Plan == "" {
		t.Errorf("plan: %v\n%s\n%s", err, changes(r), r.Plan)
	}
	if r := w.apply(state); changes(r) != want {
		t.Errorf("apply:\n%s", changes(r))
	}
	state.Networks[2].MTU = 1300 // theirs
	if _, err := w.Apply(t.Context(), state, false); err == nil ||
		!strings.Contains(err.Error(), "the files of set other declare it: remove it there") {
		t.Errorf("change what another set declares: %v", err)
	}
}

// edit changes the objects of commands as `fairlead edit` does.
func (w *world) edit(change func(*api.Spec)) (api.Result, error) {
	w.Helper()
	now, _ := w.Editable()
	spec := now
	spec.Edit = &api.Edit{Networks: now.Networks, Attachments: now.Attachments, Services: now.Services}
	text, err := json.Marshal(spec) // the user's command and the daemon exchange JSON
	var sent api.Spec
	if err = errors.Join(err, json.Unmarshal(text, &sent)); err != nil {
		w.Fatal(err)
	}
	change(&sent)
	return w.Apply(context.Background(), sent, false)
}

// TestEdit changes objects of commands. They stay those of commands; objects that the edit does not
// have stay as they are; and an object that has changed meanwhile is a conflict.
func TestEdit(t *testing.T) {
	w := newWorld(t).start()
	w.commanded()
	w.apply(api.Spec{Networks: []model.Network{bridge("declared", "10.89.0.0/24")}})
	edit := w.edit
	if r, err := edit(func(*api.Spec) {}); err != nil || r.Changed {
		t.Errorf("an edit without a change: %v, %s", err, changes(r))
	}
	r, err := edit(func(s *api.Spec) {
		s.Attachments[1].Limit.Out = 2e8
		s.Attachments[1].Publishes = s.Attachments[1].Publishes[:1]
		s.Networks = append(s.Networks[:1], bridge("new", "10.90.0.0/24"))
		s.Services = nil
	})
	const want = `network new: created
network spare: removed
attachment shop: changed
publish shop 8081/tcp: removed
service front: removed`
	if err != nil || changes(r) != want || len(r.Attachments) != 3 {
		t.Errorf("%v\n%s", err, changes(r))
	}
	for _, v := range w.Attachments() {
		if v.Origin != model.FromCommand || v.Keep != (v.Name == "lab") {
			t.Errorf("%s is of origin %q, keep %t", v.Name, v.Origin, v.Keep)
		}
	}
	if len(w.Attachments()) != 3 || len(w.Networks()) != 4 {
		t.Errorf("%d attachments and %d networks are left", len(w.Attachments()), len(w.Networks()))
	}
	if _, err := edit(func(s *api.Spec) { s.Networks[0].Name = "declared" }); err == nil {
		t.Error("an edit changes what files declare")
	}
	_, err = edit(func(s *api.Spec) {
		if _, err := w.Unpublish(t.Context(), api.PublishRequest{Target: "shop",
			Publishes: []model.Publish{port(8080, 80)}}); err != nil {
			t.Fatal(err)
		}
		s.Networks[0].MTU = 1400
	})
	if api.CodeOf(err) != api.Conflict || !strings.Contains(fmt.Sprint(err), "attachment shop has changed since") {
		t.Errorf("an edit of what has changed meanwhile: %v", err)
	}
}

// TestEditOfWhatTheFileHasNot declares objects that commands have created since the user began to edit, and one that the
// file cannot have. They stay as they are, and the mistakes name them.
func TestEditOfWhatTheFileHasNot(t *testing.T) {
	w := newWorld(t).start()
	w.commanded()
	before := w.snapshot()
	_, err := w.edit(func(s *api.Spec) {
		w.network(bridge("fresh", "10.91.0.0/24"))
		w.named("late")
		w.attach(api.AttachRequest{Endpoint: model.Endpoint{Network: "spare", Sandbox: "netns:late"},
			Publishes: []model.Publish{port(7000, 70)}})
		second := site("second", at("172.30.0.9", 80))
		second.Ports = []model.PortRange{model.Port(81)}
		w.serve(second)
		before = w.snapshot()
		fresh := bridge("fresh", "10.91.0.0/24")
		fresh.MTU = 1400
		second.Quorum = 2
		s.Networks, s.Services = append(s.Networks, fresh), append(s.Services, second)
		s.Attachments = append(s.Attachments, api.Declared{Endpoint: model.Endpoint{Network: "spare",
			Sandbox: "netns:late"}})
	})
	for _, want := range []string{"network fresh is not in the file that you edit", "attachment late is not in the file",
		"service second is not in the file"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	w.unchanged(before)
	lan := func(n model.Network) bool { return n.Name == "lan" }
	_, err = w.edit(func(s *api.Spec) { s.Networks, s.Attachments = slices.DeleteFunc(s.Networks, lan), nil })
	if err == nil || !strings.Contains(err.Error(), "has attachments that are not in the file (passing)") {
		t.Errorf("remove the network of an attachment that the file cannot have: %v", err)
	}
	_, err = w.edit(func(s *api.Spec) { s.Networks[slices.IndexFunc(s.Networks, lan)].Driver = model.DriverRouted })
	if err == nil || !strings.Contains(err.Error(), "remove it with `fairlead network rm") {
		t.Errorf("change the driver of a network: %v", err)
	}
	w.unchanged(before)
}

// TestEditedAttachmentStaysTemporary moves an attachment to another network. It still ends with its sandbox, because the
// command that created it did not ask to keep it.
func TestEditedAttachmentStaysTemporary(t *testing.T) {
	w := newWorld(t).start()
	w.commanded()
	_, err := w.edit(func(s *api.Spec) {
		for i, a := range s.Attachments {
			if a.Name == "shop" {
				s.Attachments[i].Network, s.Attachments[i].Addresses = "spare", nil
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range w.Attachments() {
		if v.Name == "shop" && (v.Network != "spare" || v.Keep) {
			t.Errorf("shop is on network %s, keep %t", v.Network, v.Keep)
		}
	}
}
