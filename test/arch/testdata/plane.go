// Package trial balances services as data plane nft does, under another name.
package trial

import (
	"fairlead/internal/balance/nft"
	"fairlead/internal/model"
)

// Plane implements balance.Plane.
type Plane struct{ nft.Plane }

// Name implements balance.Plane.
func (Plane) Name() model.Plane { return model.PlaneTrial }
