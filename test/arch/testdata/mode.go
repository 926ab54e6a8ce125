// Package trial publishes ports as mode nat does, under another name.
package trial

import (
	"fairlead/internal/model"
	"fairlead/internal/publish/nat"
)

// Mode implements publish.Mode.
type Mode struct{ nat.Mode }

// Name implements publish.Mode.
func (Mode) Name() model.Via { return "trial" }
