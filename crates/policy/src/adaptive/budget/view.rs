//! The state of a budget, for display.

use pilotlight_plant::{Component, View};

use super::Wall;

impl Wall {
    fn state(&self) -> &'static str {
        match self.budget_uw {
            None => "none",
            Some(_) if self.is_stale => "no reading of power: the CPU is at its lowest",
            Some(_) if self.unreachable_uw.is_some() => "unreachable: over the budget with everything at its lowest",
            Some(_) if self.is_full() => "limits nothing: it carries a full load",
            Some(_) => "limits are armed for a full load",
        }
    }

    pub(in crate::adaptive) fn view(&self) -> View {
        let Some(budget_uw) = self.budget_uw else { return View::new() };
        let watts = |uw: f64| format!("{:.1}", uw / 1e6);
        let limited = |uw: f64, most: f64| if uw >= most { "not limited".to_owned() } else { watts(uw) };
        let rest_uw = self.rest_uw();
        vec![
            ("budget W", watts(budget_uw as f64)),
            ("budget_state", self.state().to_owned()),
            ("budget by", self.model.to_owned()),
            ("CPU may draw, W", limited(self.cpu_allowance_uw(), self.cpu.highest_uw() as f64 * self.excess)),
            ("drives may draw beyond idle, W", limited(self.drives_uw, f64::INFINITY)),
            ("bandwidth caps", self.bandwidth.text()),
            ("power of all else, W", rest_uw.map_or("not measured yet".to_owned(), watts)),
            ("bottleneck", self.binding().map_or("unknown", Component::name).to_owned()),
        ]
    }
}
