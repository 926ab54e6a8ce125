package spec

import (
	"testing"

	"fairlead/internal/model"

	"github.com/google/go-cmp/cmp"
)

// TestRestored undoes the changes of one set of files, and keeps those that others have made since.
func TestRestored(t *testing.T) {
	ours, theirs := model.FileSet("shop"), model.FromCommand
	network := func(name string, by model.Origin) model.Network { return model.Network{Name: name, Origin: by} }
	before := model.Desired{Networks: []model.Network{network("old", ours), network("lan", theirs)},
		Gateway: &model.Gateway{Origin: ours}}
	before.Networks = append(before.Networks, network("adopted", theirs))
	now := model.Desired{Networks: []model.Network{network("lan", theirs), network("new", ours),
		network("adopted", ours), network("two", theirs)},
		Gateway: &model.Gateway{Origin: ours}}
	got := Restored(now, before, ours)
	want := []model.Network{network("lan", theirs), network("two", theirs), network("old", ours),
		network("adopted", theirs)}
	if diff := cmp.Diff(want, got.Networks); diff != "" || got.Gateway != before.Gateway {
		t.Errorf("-want +got\n%s", diff)
	}
	before.Gateway, now.Gateway = nil, &model.Gateway{Origin: model.FileSet("other")}
	if got := Restored(now, before, ours); got.Gateway != now.Gateway {
		t.Error("the gateway of another set is removed")
	}
}
