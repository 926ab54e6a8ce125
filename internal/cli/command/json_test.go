package command

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"
)

type jsonInner struct {
	List []string `json:"list"`
}

type jsonOuter struct {
	jsonInner
	*JSONPointer
	Lists    [][]int              `json:"lists"`
	Map      map[string][]int     `json:"map"`
	Omitted  []string             `json:"omitted,omitempty"`
	Zero     []string             `json:"zero,omitzero"`
	Pointer  *jsonInner           `json:"pointer,omitempty"`
	Any      any                  `json:"any"`
	Elements []jsonInner          `json:"elements"`
	Address  netip.Addr           `json:"address"`
	Time     time.Time            `json:"time"`
	Raw      json.RawMessage      `json:"raw,omitempty"`
	By       map[string]jsonInner `json:"by"`
}

// JSONPointer is embedded with a pointer.
type JSONPointer struct {
	Embedded []string `json:"embedded"`
}

// TestEmptyListsAreLists: nil lists and maps are [] and {}, at any depth. The value of the
// caller stays as it is.
func TestEmptyListsAreLists(t *testing.T) {
	v := jsonOuter{JSONPointer: &JSONPointer{}, Lists: [][]int{nil, {1}}, Map: map[string][]int{"a": nil},
		Pointer: &jsonInner{}, Any: jsonInner{}, Elements: []jsonInner{{}, {List: []string{"x"}}},
		Address: netip.MustParseAddr("192.0.2.1"), By: map[string]jsonInner{"b": {}}}
	var text strings.Builder
	if err := NewPrinter(&text).JSONLine(v); err != nil {
		t.Fatal(err)
	}
	const want = `{"list":[],"embedded":[],"lists":[[],[1]],"map":{"a":[]},"pointer":{"list":[]},"any":{"list":[]},` +
		`"elements":[{"list":[]},{"list":["x"]}],"address":"192.0.2.1","time":"0001-01-01T00:00:00Z","by":{"b":{"list":[]}}}` + "\n"
	if text.String() != want {
		t.Errorf("got  %swant %s", text.String(), want)
	}
	if v.List != nil || v.Elements[0].List != nil || v.Pointer.List != nil || v.Embedded != nil {
		t.Errorf("the value was changed: %+v", v)
	}
}
