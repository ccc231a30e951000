// Exchanges the token for a session cookie.
'use strict';

const form = document.getElementById('login');
const output = form.querySelector('output');

async function login(token) {
  const response = await fetch('/login', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ token }),
  });
  const answer = await response.json();
  if (answer.error) throw new Error(answer.error.message);
}

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  output.textContent = '';
  try {
    await login(document.getElementById('token').value);
    location.replace('/');
  } catch (error) {
    output.className = 'refused';
    output.textContent = error.message;
  }
});

document.getElementById('token').focus();
